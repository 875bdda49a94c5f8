// Token ids to text, one id at a time, in whole UTF-8 characters.

#ifndef SERVER_TOKENIZER_DETOKENIZER_H_
#define SERVER_TOKENIZER_DETOKENIZER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/tokenizer/tokenizer.h"

namespace flash {

// Turns bytes that come in parts into valid UTF-8.
//
// An incomplete character at the end (at most 3 bytes) is held back until its
// rest comes. Bytes that can never become a character are replaced by U+FFFD,
// one for each maximal subpart (Unicode 15, section 3.9, "U+FFFD Substitution
// of Maximal Subparts"), so what comes out does not depend on how the bytes
// were cut into parts.
//
// Thread safety: one thread at a time. A copy goes on independently.
class Utf8Assembler {
 public:
  // Appends to `text` what is certain now that `bytes` have come.
  void Push(std::string_view bytes, std::string& text);

  // Ends the text: appends U+FFFD if a character was left incomplete.
  void Flush(std::string& text);

  // The bytes of a character that is not whole yet: at most 3.
  std::string_view pending() const {
    return {pending_, static_cast<size_t>(num_pending_)};
  }

 private:
  // Takes one byte; true if it belongs to the character that was begun.
  bool Continue(unsigned char byte, std::string& text);
  void Begin(unsigned char byte, std::string& text);

  char pending_[4] = {};
  int num_pending_ = 0;
  int num_missing_ = 0;  // bytes until the pending character is whole
  // What the next byte may be; narrower than 80..BF after some lead bytes.
  unsigned char next_low_ = 0x80;
  unsigned char next_high_ = 0xBF;
};

// The text of a growing list of ids. The concatenation of what Push() and
// Flush() return is what Decode() returns for all the ids at once.
//
// Thread safety: one thread at a time. A copy goes on independently. The
// tokenizer is borrowed.
class Detokenizer {
 public:
  // `place`: kFirst if nothing stands before these ids (PlaceAfter() tells).
  // It stays kFirst until an id comes that adds text.
  Detokenizer(const Tokenizer& tokenizer, Tokenizer::Place place)
      : Detokenizer(tokenizer, place, {}) {}

  // Goes on after ids that left `incomplete` of a character behind: what
  // another's incomplete() was.
  Detokenizer(const Tokenizer& tokenizer, Tokenizer::Place place,
              std::string_view incomplete);

  // The bytes that `id` adds here, as Piece() gives them. Changes nothing.
  std::string Piece(int32_t id) const { return tokenizer_->Piece(id, place_); }

  // The text that `id` completes: valid UTF-8, perhaps empty.
  std::string Push(int32_t id);

  // Ends the text. Returns U+FFFD if a character was left incomplete, and
  // nothing otherwise.
  std::string Flush();

  // Where the next id will stand.
  Tokenizer::Place place() const { return place_; }
  // Bytes of a character that is not whole yet.
  std::string_view incomplete() const { return assembler_.pending(); }

 private:
  const Tokenizer* tokenizer_;
  Tokenizer::Place place_;
  Utf8Assembler assembler_;
};

// The text of `ids`, from the beginning of a text.
std::string Decode(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// Where an id after `ids` stands: kFirst if none of them adds text (no ids, or
// BOS alone).
Tokenizer::Place PlaceAfter(const Tokenizer& tokenizer,
                            std::span<const int32_t> ids);

// Whether `text` is valid UTF-8 (no surrogates, nothing above U+10FFFF, no
// overlong forms). U+0000 is a character like any other.
bool IsValidUtf8(std::string_view text);

}  // namespace flash

#endif  // SERVER_TOKENIZER_DETOKENIZER_H_
