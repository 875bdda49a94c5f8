#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

void Utf8Assembler::Push(std::string_view bytes, std::string& text) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (num_pending_ > 0 && Continue(byte, text)) continue;
    Begin(byte, text);
  }
}

void Utf8Assembler::Flush(std::string& text) {
  if (num_pending_ > 0) text.append(kReplacement);
  num_pending_ = 0;
}

bool Utf8Assembler::Continue(unsigned char byte, std::string& text) {
  if (byte < next_low_ || byte > next_high_) {
    // What is pending is a maximal subpart; `byte` begins something new.
    text.append(kReplacement);
    num_pending_ = 0;
    return false;
  }
  pending_[num_pending_++] = static_cast<char>(byte);
  next_low_ = 0x80;
  next_high_ = 0xBF;
  if (--num_missing_ == 0) {
    text.append(pending_, num_pending_);
    num_pending_ = 0;
  }
  return true;
}

void Utf8Assembler::Begin(unsigned char byte, std::string& text) {
  if (byte < 0x80) {
    text.push_back(static_cast<char>(byte));
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {  // 80..BF, overlong C0 and C1, F5..FF
    text.append(kReplacement);
    return;
  }
  pending_[0] = static_cast<char>(byte);
  num_pending_ = 1;
  num_missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  // Table 3-7 of the Unicode standard: no overlong forms (E0, F0), no
  // surrogates (ED), nothing above U+10FFFF (F4).
  next_low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  next_high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Tokenizer::Place place,
                         std::string_view incomplete)
    : tokenizer_(&tokenizer), place_(place) {
  std::string text;
  assembler_.Push(incomplete, text);
}

std::string Detokenizer::Push(int32_t id) {
  std::string piece = tokenizer_->Piece(id, place_);
  if (place_ == Tokenizer::Place::kFirst) {
    // A lone dummy prefix adds no text here, but it is not there a second time.
    const bool stands =
        !piece.empty() ||
        !tokenizer_->Piece(id, Tokenizer::Place::kLater).empty();
    if (stands) place_ = Tokenizer::Place::kLater;
  }
  std::string text;
  assembler_.Push(piece, text);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  assembler_.Flush(text);
  return text;
}

std::string Decode(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  Detokenizer detokenizer(tokenizer, Tokenizer::Place::kFirst);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id);
  text += detokenizer.Flush();
  return text;
}

Tokenizer::Place PlaceAfter(const Tokenizer& tokenizer,
                            std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    if (!tokenizer.Piece(id, Tokenizer::Place::kLater).empty()) {
      return Tokenizer::Place::kLater;
    }
  }
  return Tokenizer::Place::kFirst;
}

bool IsValidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (text.size() - at < more) return false;
    const auto second = static_cast<unsigned char>(text[at]);
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (second < low || second > high) return false;
    for (size_t i = 1; i < more; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) {
        return false;
      }
    }
    at += more;
  }
  return true;
}

}  // namespace flash
