#include "server/sessions/snapshot_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "flash/v1/snapshot.pb.h"
#include "server/model/digest.h"
#include "server/scheduler/snapshot_check.h"

namespace flash {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kFailedPrecondition =
    absl::StatusCode::kFailedPrecondition;
constexpr SnapshotCompression kNone = SnapshotCompression::kNone;
constexpr SnapshotCompression kZstd = SnapshotCompression::kZstd;

const Fingerprint kFingerprint = {"0f1e", "bytes", "layers=2", "cpu/avx512"};

// With something in every field.
Snapshot SomeSnapshot() {
  Snapshot snapshot;
  snapshot.position = 70;
  snapshot.state = std::make_shared<const std::string>(
      std::string("state\0with a zero", 17) + std::string(40, 's'));
  snapshot.pending = {0, 2147483647, 7};
  snapshot.recent = {{5, false}, {0, true}, {2147483647, false}, {7, true}};
  snapshot.place = Tokenizer::Place::kLater;
  snapshot.incomplete = "\xF0\x9F\x98";
  snapshot.held = "end of \xC3\xA9";
  snapshot.seed = 0xFEDCBA9876543210u;
  snapshot.output_index = 4294967295u;
  snapshot.ended = true;
  return snapshot;
}

void ExpectEqual(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.position, b.position);
  ASSERT_EQ(a.state == nullptr, b.state == nullptr);
  EXPECT_TRUE(a.state == nullptr || *a.state == *b.state);
  EXPECT_EQ(a.pending, b.pending);
  EXPECT_EQ(a.recent, b.recent);
  EXPECT_EQ(a.place, b.place);
  EXPECT_EQ(a.incomplete, b.incomplete);
  EXPECT_EQ(a.held, b.held);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.output_index, b.output_index);
  EXPECT_EQ(a.ended, b.ended);
}

void ExpectComesBack(const Snapshot& snapshot) {
  for (const SnapshotCompression compression : {kNone, kZstd}) {
    const SnapshotCodec codec(kFingerprint, compression);
    const auto back = codec.Decode(codec.Encode(snapshot));
    ASSERT_TRUE(back.ok()) << back.status();
    ExpectEqual(**back, snapshot);
  }
}

absl::Status ErrorOf(std::string_view bytes) {
  return SnapshotCodec(kFingerprint, kNone).Decode(bytes).status();
}

std::string MessageOf(std::string_view bytes) {
  return std::string(ErrorOf(bytes).message());
}

std::string EncodedBy(const Fingerprint& fingerprint) {
  return SnapshotCodec(fingerprint, kNone).Encode(SomeSnapshot());
}

// With the checksum that belongs to it.
std::string Sealed(std::string bytes) { return bytes += DigestOf(bytes); }

// As a snapshot in its outer form, whatever is in it.
std::string Wrapped(const v1::SnapshotHeader& header, std::string_view state) {
  const std::string written = header.SerializeAsString();
  const uint32_t numbers[] = {SnapshotCodec::kFormatVersion,
                              static_cast<uint32_t>(written.size())};
  std::string bytes = "FLASHSNP";
  bytes.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  return Sealed(bytes.append(written).append(state));
}

// The header of a small snapshot that is well, with a state of 4 bytes.
v1::SnapshotHeader SmallHeader() {
  v1::SnapshotHeader header;
  header.set_model(kFingerprint.model);
  header.set_tokenizer(kFingerprint.tokenizer);
  header.set_state_format(kFingerprint.state_format);
  header.set_numerics(kFingerprint.numerics);
  header.set_position(9);
  header.add_pending(3);
  header.add_recent(2 * 3 + 1);
  header.set_state_bytes(4);
  return header;
}

TEST(SnapshotCodec, GivesBackEveryField) { ExpectComesBack(SomeSnapshot()); }

TEST(SnapshotCodec, GivesBackASnapshotOfNothing) {
  Snapshot empty;
  ExpectComesBack(empty);
  empty.pending = {3};
  empty.recent = {{3, false}};
  ExpectComesBack(empty);
}

TEST(SnapshotCodec, GivesBackALargeOne) {
  Snapshot snapshot = SomeSnapshot();
  std::string state(1 << 20, '\0');
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = static_cast<char>(i * i >> 7);
  }
  snapshot.state = std::make_shared<const std::string>(std::move(state));
  snapshot.position = int64_t{1} << 40;
  snapshot.recent.assign(kMaxPenaltyWindow - 3, {1 << 30, true});
  for (const int32_t id : snapshot.pending) {
    snapshot.recent.push_back({id, true});
  }
  ExpectComesBack(snapshot);
}

TEST(SnapshotCodec, ReadsWhatIsCompressedWhateverItWrites) {
  const SnapshotCodec plain(kFingerprint, kNone);
  const SnapshotCodec small(kFingerprint, kZstd);
  Snapshot snapshot = SomeSnapshot();
  snapshot.state = std::make_shared<const std::string>(10000, 'z');
  EXPECT_LT(small.Encode(snapshot).size(), 1000u);
  ExpectEqual(**plain.Decode(small.Encode(snapshot)), snapshot);
  ExpectEqual(**small.Decode(plain.Encode(snapshot)), snapshot);
}

TEST(SnapshotCodec, WritesTheSameBytesForTheSameSnapshot) {
  for (const SnapshotCompression compression : {kNone, kZstd}) {
    const SnapshotCodec codec(kFingerprint, compression);
    EXPECT_EQ(codec.Encode(SomeSnapshot()), codec.Encode(SomeSnapshot()));
  }
}

TEST(SnapshotCodec, RefusesEverySingleDamagedByte) {
  for (const SnapshotCompression compression : {kNone, kZstd}) {
    const SnapshotCodec codec(kFingerprint, compression);
    const std::string whole = codec.Encode(SomeSnapshot());
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int change : {1, 0x80, 0xFF}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ change);
        EXPECT_EQ(codec.Decode(bytes).status().code(), kDataLoss)
            << "byte " << at << " changed by " << change;
      }
    }
  }
}

TEST(SnapshotCodec, RefusesEveryTruncation) {
  for (const SnapshotCompression compression : {kNone, kZstd}) {
    const SnapshotCodec codec(kFingerprint, compression);
    const std::string whole = codec.Encode(SomeSnapshot());
    for (size_t size = 0; size < whole.size(); ++size) {
      const absl::Status status =
          codec.Decode(std::string_view(whole).substr(0, size)).status();
      EXPECT_EQ(status.code(), kDataLoss) << size;
      if (size >= 8) {
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("cut off"),
                          HasSubstr("has " + std::to_string(size) + " of")));
      }
    }
  }
}

TEST(SnapshotCodec, RefusesBytesAfterTheEnd) {
  const std::string whole = EncodedBy(kFingerprint);
  EXPECT_EQ(ErrorOf(whole + "x").code(), kDataLoss);
  EXPECT_THAT(MessageOf(whole + "xy"), HasSubstr("2 bytes follow its end"));
  EXPECT_THAT(MessageOf(Sealed(whole)), HasSubstr("16 bytes follow its end"));
}

TEST(SnapshotCodec, SaysWhenBytesAreNoSnapshot) {
  for (const std::string& bytes :
       {std::string(), std::string("FLASH"), std::string(100, '\0'),
        std::string("FLASHSNQ, and then more")}) {
    EXPECT_EQ(ErrorOf(bytes).code(), kDataLoss);
    EXPECT_THAT(MessageOf(bytes), HasSubstr("something else than a snapshot"));
  }
}

TEST(SnapshotCodec, NamesTheFormatVersionThatItDoesNotRead) {
  const std::string whole = EncodedBy(kFingerprint);
  for (const int version : {0, 2, 255}) {
    std::string bytes = whole.substr(0, whole.size() - kDigestBytes);
    bytes[8] = static_cast<char>(version);
    // Without its checksum it may as well be a damaged one of this version.
    EXPECT_EQ(ErrorOf(bytes + whole.substr(bytes.size())).code(), kDataLoss);
    bytes = Sealed(bytes);
    EXPECT_EQ(ErrorOf(bytes).code(), kFailedPrecondition);
    EXPECT_THAT(MessageOf(bytes),
                AllOf(HasSubstr("version " + std::to_string(version)),
                      HasSubstr("reads version 1")));
  }
}

TEST(SnapshotCodec, NamesWhatDiffersWithBothValues) {
  Fingerprint other = kFingerprint;
  other.model = "another model";
  EXPECT_EQ(ErrorOf(EncodedBy(other)).code(), kFailedPrecondition);
  EXPECT_THAT(MessageOf(EncodedBy(other)),
              AllOf(HasSubstr("model is \"another model\", not \"0f1e\""),
                    Not(HasSubstr("numerics"))));
  other = kFingerprint;
  other.tokenizer = "pieces";
  EXPECT_THAT(MessageOf(EncodedBy(other)),
              HasSubstr("tokenizer is \"pieces\", not \"bytes\""));
  other = kFingerprint;
  other.state_format = "layers=3";
  EXPECT_THAT(MessageOf(EncodedBy(other)),
              HasSubstr("state format is \"layers=3\", not \"layers=2\""));
  other.numerics = "cpu/avx2";
  EXPECT_EQ(ErrorOf(EncodedBy(other)).code(), kFailedPrecondition);
  EXPECT_THAT(MessageOf(EncodedBy(other)),
              AllOf(HasSubstr("state format is \"layers=3\""),
                    HasSubstr("numerics is \"cpu/avx2\", not \"cpu/avx512\"")));
}

TEST(SnapshotCodec, KeepsItsMessagesShortAndPrintable) {
  Fingerprint other = kFingerprint;
  other.model = std::string(100000, '\n') + "\xFF";
  const std::string message = MessageOf(EncodedBy(other));
  EXPECT_LT(message.size(), 1500u);
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(SnapshotCodec, BelievesNoHeaderThatContradictsItself) {
  const std::string state = "1234";
  ASSERT_TRUE(ErrorOf(Wrapped(SmallHeader(), state)).ok())
      << MessageOf(Wrapped(SmallHeader(), state));
  const auto refused = [&](auto change, const std::string& why) {
    v1::SnapshotHeader header = SmallHeader();
    change(header);
    const std::string bytes = Wrapped(header, state);
    EXPECT_EQ(ErrorOf(bytes).code(), kDataLoss) << why;
    EXPECT_THAT(MessageOf(bytes), HasSubstr(why));
  };
  using Header = v1::SnapshotHeader;
  refused([](Header& h) { h.set_position(uint64_t{1} << 63); }, "position");
  refused([](Header& h) { h.set_position(0); }, "at position 0");
  refused([](Header& h) { h.set_state_bytes(5); }, "cut off");
  refused([](Header& h) { h.set_state_bytes(~uint64_t{0}); }, "cut off");
  refused([](Header& h) { h.set_state_bytes(3); }, "1 bytes follow");
  refused([](Header& h) { h.set_frame_bytes(4); }, "zstd frame");
  refused([](Header& h) { h.set_frame_bytes(~uint64_t{0}); }, "cut off");
  refused([](Header& h) { h.set_pending(0, 1u << 31); }, "token id");
  refused([](Header& h) { h.set_pending(0, 4); }, "differ");
  refused([](Header& h) { h.add_pending(3), h.add_recent(2 * 4); }, "differ");
  refused(
      [](Header& h) { h.set_position(1), h.add_recent(0), h.add_recent(0); },
      "3 recent tokens of 2");
  refused(
      [](Header& h) {
        h.set_position(1 << 20);
        while (h.recent_size() <= kMaxPenaltyWindow) h.add_recent(2 * 3);
      },
      "the most is 65536");
  refused(
      [](Header& h) {
        while (h.pending_size() <= kMaxPenaltyWindow) h.add_pending(3);
      },
      "pending tokens");
  refused([](Header& h) { h.set_incomplete("a"); }, "incomplete");
  refused([](Header& h) { h.set_incomplete("\x80"); }, "incomplete");
  refused([](Header& h) { h.set_incomplete("\xC3\xA9"); }, "incomplete");
  refused([](Header& h) { h.set_incomplete("\xF0\x9F\x98\x80"); },
          "incomplete");
  refused([](Header& h) { h.set_held("\xFF"); }, "not valid UTF-8");
  refused([](Header& h) { h.set_held(std::string(kMaxHeldBytes + 1, 'h')); },
          "65537 bytes of text");
}

TEST(SnapshotCodec, RefusesAHeaderThatIsNone) {
  std::string bytes = "FLASHSNP";
  const uint32_t numbers[] = {1, 3};
  bytes.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  bytes = Sealed(bytes.append("\xFF\xFF\xFF"));
  EXPECT_THAT(MessageOf(bytes), HasSubstr("header cannot be read"));
  const uint32_t large[] = {1, 0xFFFFFFFFu};
  bytes = "FLASHSNP";
  bytes.append(reinterpret_cast<const char*>(large), sizeof(large));
  EXPECT_THAT(MessageOf(Sealed(bytes)), HasSubstr("4294967295"));
}

// What unpacks to more than anybody has memory for.
TEST(SnapshotCodec, TakesNoMemoryThatItIsNotAllowed) {
  Snapshot snapshot = SomeSnapshot();
  snapshot.state = std::make_shared<const std::string>(1 << 20, '\0');
  const std::string bytes = SnapshotCodec(kFingerprint, kZstd).Encode(snapshot);
  EXPECT_TRUE(SnapshotCodec(kFingerprint, kNone, {1 << 20}).Decode(bytes).ok());
  const absl::Status status =
      SnapshotCodec(kFingerprint, kNone, {(1 << 20) - 1})
          .Decode(bytes)
          .status();
  EXPECT_EQ(status.code(), kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("1048576"), HasSubstr("1048575")));
}

TEST(SnapshotCodec, RefusesWhatTheModelCouldNotGoOnWith) {
  const std::string bytes = EncodedBy(kFingerprint);
  const auto decode = [&](SnapshotLimits limits) {
    return SnapshotCodec(kFingerprint, kNone, std::move(limits))
        .Decode(bytes)
        .status();
  };
  EXPECT_TRUE(decode({}).ok());
  const absl::Status unknown = decode({.num_ids = 2147483647});
  EXPECT_EQ(unknown.code(), kDataLoss);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("id 2147483647"));
  const auto check = [](std::string_view state, int64_t position) {
    return absl::InvalidArgumentError(
        absl::StrCat(state.size(), " bytes at ", position));
  };
  const absl::Status foreign = decode({.check_state = check});
  EXPECT_EQ(foreign.code(), kDataLoss);
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("57 bytes at 70"));
}

TEST(SnapshotCodec, RefusesAFrameOfAnotherSizeThanTheHeaderSays) {
  Snapshot snapshot = SomeSnapshot();
  snapshot.state = std::make_shared<const std::string>(5000, 'z');
  const std::string whole = SnapshotCodec(kFingerprint, kZstd).Encode(snapshot);
  v1::SnapshotHeader header = SmallHeader();
  uint32_t header_bytes;
  std::memcpy(&header_bytes, whole.data() + 12, sizeof(header_bytes));
  std::string frame = whole.substr(16 + header_bytes);
  frame.resize(frame.size() - kDigestBytes);
  header.set_frame_bytes(frame.size());
  for (const uint64_t size :
       {uint64_t{4999}, uint64_t{5001}, uint64_t{1} << 31}) {
    header.set_state_bytes(size);
    EXPECT_THAT(MessageOf(Wrapped(header, frame)), HasSubstr("zstd frame"));
  }
  header.set_state_bytes(5000);
  EXPECT_TRUE(ErrorOf(Wrapped(header, frame)).ok());
  frame[frame.size() - 1] ^= 0x55;  // the frame itself is damaged
  EXPECT_EQ(ErrorOf(Wrapped(header, frame)).code(), kDataLoss);
}

}  // namespace
}  // namespace flash
