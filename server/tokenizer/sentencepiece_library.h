// The SentencePiece library behind plain types. Its header declares a
// string_view in namespace absl that is not Abseil's, so the two can never be
// included in one file: this header includes neither.

#ifndef SERVER_TOKENIZER_SENTENCEPIECE_LIBRARY_H_
#define SERVER_TOKENIZER_SENTENCEPIECE_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace flash {

// A loaded SentencePiece model.
//
// Thread safety: immutable once loaded; any thread.
class SentencePieceLibrary {
 public:
  // Returns the model in `serialized` (a .model file's bytes), or null with the
  // library's own words in `error`.
  static std::unique_ptr<SentencePieceLibrary> Load(std::string_view serialized,
                                                    std::string& error);
  ~SentencePieceLibrary();

  int num_pieces() const;
  int bos_id() const;  // negative: none
  int eos_id() const;  // negative: none

  // The bytes that the piece adds to a text, wherever it stands but at its
  // beginning. REQUIRES: 0 <= id < num_pieces().
  std::string Surface(int id) const;

  // Whether the piece is written with the sign for a space at its front: what
  // a dummy prefix becomes. (The unknown piece and the byte of a space are not,
  // though their surfaces begin with one.)
  bool BeginsWithSpaceSymbol(int id) const;

  // Whether a text that begins with "a" is encoded as if with a space before.
  bool AddsDummyPrefix() const;

  // False, with the library's words in `error`, if it refuses the text.
  bool Encode(std::string_view text, std::vector<int32_t>& ids,
              std::string& error) const;
  // The same for a text that goes on another: nothing is put before it, and its
  // spaces stay as they are, whatever the model does to a text that begins.
  bool EncodeLater(std::string_view text, std::vector<int32_t>& ids,
                   std::string& error) const;

  // The library's own decoding, of all ids at once.
  std::string Decode(const std::vector<int32_t>& ids) const;

 private:
  struct Rep;
  explicit SentencePieceLibrary(std::unique_ptr<Rep> rep);

  std::unique_ptr<Rep> rep_;
};

}  // namespace flash

#endif  // SERVER_TOKENIZER_SENTENCEPIECE_LIBRARY_H_
