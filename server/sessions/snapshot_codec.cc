#include "server/sessions/snapshot_codec.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "flash/v1/snapshot.pb.h"
#include "kernels/check.h"
#include "server/model/digest.h"
#include "server/model/sampling.h"
#include "server/model/state_bytes.h"
#include "server/scheduler/snapshot_check.h"

namespace flash {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "FLASHSNP";
constexpr size_t kPreambleBytes = kMagic.size() + 2 * sizeof(uint32_t);
constexpr size_t kLeastBytes = kPreambleBytes + kDigestBytes;
constexpr size_t kMaxHeaderBytes = SnapshotCodec::kMaxHeaderBytes;
// Ids take five bytes at most, and are there once or twice.
static_assert(2 * 5 * kMaxPenaltyWindow + kMaxHeldBytes + (64 << 10) <
              kMaxHeaderBytes);

// Speed before size: states hardly become smaller at the levels that take
// their time.
constexpr int kZstdLevel = 1;

absl::Status Damaged(std::string_view how) {
  return absl::DataLossError(
      absl::StrCat("the snapshot is damaged: ", std::string(how)));
}

void AppendUint32(uint32_t value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint32_t Uint32At(std::string_view bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::string Compress(const std::string& state) {
  std::string frame(ZSTD_compressBound(state.size()), '\0');
  const size_t size = ZSTD_compress(frame.data(), frame.size(), state.data(),
                                    state.size(), kZstdLevel);
  FLASH_CHECK(!ZSTD_isError(size));  // out of memory, if anything
  frame.resize(size);
  return frame;
}

v1::SnapshotHeader HeaderOf(const Snapshot& snapshot,
                            const Fingerprint& fingerprint) {
  v1::SnapshotHeader header;
  header.set_model(fingerprint.model);
  header.set_tokenizer(fingerprint.tokenizer);
  header.set_state_format(fingerprint.state_format);
  header.set_numerics(fingerprint.numerics);
  header.set_position(snapshot.position);
  header.mutable_pending()->Add(snapshot.pending.begin(),
                                snapshot.pending.end());
  header.mutable_recent()->Reserve(static_cast<int>(snapshot.recent.size()));
  for (const RecentToken& token : snapshot.recent) {
    header.add_recent(uint32_t{2} * token.id + (token.is_output ? 1 : 0));
  }
  header.set_begins_text(snapshot.place == Tokenizer::Place::kFirst);
  header.set_incomplete(snapshot.incomplete);
  header.set_held(snapshot.held);
  header.set_seed(snapshot.seed);
  header.set_output_index(snapshot.output_index);
  header.set_ended(snapshot.ended);
  return header;
}

// Where the parts of some bytes lie, as the bytes themselves say.
struct Parts {
  v1::SnapshotHeader header;
  std::string_view state;  // as stored
};

// REQUIRES: `bytes` begin with a preamble of this format version, and have
// kLeastBytes.
absl::Status ReadParts(std::string_view bytes, Parts& parts) {
  const auto cut_off = [&](uint64_t whole) {
    return absl::DataLossError(absl::StrCat("the snapshot is cut off: it has ",
                                            bytes.size(), " of at least ",
                                            whole, " bytes"));
  };
  const size_t header_bytes = Uint32At(bytes, kMagic.size() + sizeof(uint32_t));
  if (header_bytes > kMaxHeaderBytes) {
    return Damaged(absl::StrCat("its header would have ", header_bytes,
                                " bytes; the most is ", kMaxHeaderBytes));
  }
  const size_t room = bytes.size() - kLeastBytes;
  if (header_bytes > room) return cut_off(kLeastBytes + header_bytes);
  if (!parts.header.ParseFromArray(bytes.data() + kPreambleBytes,
                                   static_cast<int>(header_bytes))) {
    return Damaged("its header cannot be read");
  }
  const uint64_t stored = parts.header.frame_bytes() > 0
                              ? parts.header.frame_bytes()
                              : parts.header.state_bytes();
  const uint64_t found = room - header_bytes;
  if (stored > found) {
    const uint64_t most = std::numeric_limits<int64_t>::max();
    return cut_off(std::min(stored, most) + kLeastBytes + header_bytes);
  }
  if (stored < found) {
    return Damaged(absl::StrCat(found - stored, " bytes follow its end"));
  }
  parts.state = bytes.substr(kPreambleBytes + header_bytes, stored);
  return absl::OkStatus();
}

// What Decode() makes sure of before it believes anything.
absl::Status Read(std::string_view bytes, Parts& parts) {
  if (!bytes.starts_with(kMagic)) {
    return absl::DataLossError(
        absl::StrCat("these are ", bytes.size(),
                     " bytes of something else than a snapshot"));
  }
  if (bytes.size() < kLeastBytes) {
    return absl::DataLossError(absl::StrCat("the snapshot is cut off: it has ",
                                            bytes.size(), " of at least ",
                                            kLeastBytes, " bytes"));
  }
  const uint32_t version = Uint32At(bytes, kMagic.size());
  const bool known = version == SnapshotCodec::kFormatVersion;
  absl::Status read;
  if (known) read = ReadParts(bytes, parts);
  // A snapshot that is too short or too long has no digest where one should
  // be: of the two complaints the other one helps.
  const std::string_view digest = bytes.substr(bytes.size() - kDigestBytes);
  if (read.ok() &&
      DigestOf(bytes.substr(0, bytes.size() - kDigestBytes)) != digest) {
    return Damaged("its checksum is not that of its bytes");
  }
  if (!known) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the snapshot has format version ", version,
        "; this server reads version ", SnapshotCodec::kFormatVersion));
  }
  return read;
}

// `text` for a message, of whatever length and bytes it is.
std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 300;
  return absl::StrCat("\"",
                      absl::CHexEscape(std::string(text.substr(0, kMost))),
                      text.size() > kMost ? "..." : "", "\"");
}

absl::Status CheckFingerprint(const v1::SnapshotHeader& header,
                              const Fingerprint& here) {
  std::vector<std::string> differences;
  const auto compare = [&](std::string_view what, const std::string& there,
                           const std::string& value) {
    if (there == value) return;
    differences.push_back(absl::StrCat(std::string(what), " is ", Quoted(there),
                                       ", not ", Quoted(value)));
  };
  compare("model", header.model(), here.model);
  compare("tokenizer", header.tokenizer(), here.tokenizer);
  compare("state format", header.state_format(), here.state_format);
  compare("numerics", header.numerics(), here.numerics);
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the snapshot was made elsewhere and cannot be gone on with "
                   "here, bit for bit: its ",
                   absl::StrJoin(differences, "; its ")));
}

absl::Status CheckState(const v1::SnapshotHeader& header, int64_t most) {
  if ((header.position() == 0) != (header.state_bytes() == 0)) {
    return Damaged(absl::StrCat("at position ", header.position(),
                                " its state has ", header.state_bytes(),
                                " bytes"));
  }
  if (header.state_bytes() == 0 && header.frame_bytes() > 0) {
    return Damaged("it has a frame, but no state");
  }
  if (header.state_bytes() > static_cast<uint64_t>(most)) {
    return Damaged(absl::StrCat("its state has ", header.state_bytes(),
                                " bytes; the most is ", most));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const std::string>> ReadState(
    const Parts& parts) {
  if (parts.header.state_bytes() == 0) return nullptr;
  if (parts.header.frame_bytes() == 0) {
    return ShareState(std::string(parts.state));
  }
  const uint64_t size = parts.header.state_bytes();
  const std::string_view frame = parts.state;
  // What the frame itself says is looked at before there is memory for it.
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != size ||
      ZSTD_findFrameCompressedSize(frame.data(), frame.size()) !=
          frame.size()) {
    return Damaged("its zstd frame is not one of its state's size");
  }
  std::string state(size, '\0');
  const size_t written =
      ZSTD_decompress(state.data(), state.size(), frame.data(), frame.size());
  std::shared_ptr<const std::string> shared = ShareState(std::move(state));
  if (written != size) {
    return Damaged(absl::StrCat("its zstd frame cannot be read: ",
                                ZSTD_isError(written)
                                    ? ZSTD_getErrorName(written)
                                    : "it is too short"));
  }
  return shared;
}

std::shared_ptr<const Snapshot> SnapshotOf(
    v1::SnapshotHeader header, std::shared_ptr<const std::string> state) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->position = static_cast<int64_t>(header.position());
  snapshot->state = std::move(state);
  snapshot->pending.assign(header.pending().begin(), header.pending().end());
  snapshot->recent.reserve(header.recent_size());
  for (const uint32_t token : header.recent()) {
    snapshot->recent.push_back(
        {static_cast<int32_t>(token / 2), token % 2 == 1});
  }
  snapshot->place = header.begins_text() ? Tokenizer::Place::kFirst
                                         : Tokenizer::Place::kLater;
  snapshot->incomplete = std::move(*header.mutable_incomplete());
  snapshot->held = std::move(*header.mutable_held());
  snapshot->seed = header.seed();
  snapshot->output_index = header.output_index();
  snapshot->ended = header.ended();
  return snapshot;
}

}  // namespace

std::string SnapshotCodec::Encode(const Snapshot& snapshot) const {
  v1::SnapshotHeader header = HeaderOf(snapshot, fingerprint_);
  std::string frame;
  std::string_view state;
  if (snapshot.state != nullptr) {
    state = *snapshot.state;
    header.set_state_bytes(state.size());
    if (compression_ == SnapshotCompression::kZstd) {
      state = frame = Compress(*snapshot.state);
      header.set_frame_bytes(frame.size());
    }
  }
  const size_t header_bytes = header.ByteSizeLong();
  FLASH_CHECK(header_bytes <= kMaxHeaderBytes);
  std::string bytes;
  bytes.reserve(kLeastBytes + header_bytes + state.size());
  bytes.append(kMagic);
  AppendUint32(kFormatVersion, bytes);
  AppendUint32(static_cast<uint32_t>(header_bytes), bytes);
  header.AppendToString(&bytes);
  bytes.append(state);
  bytes.append(DigestOf(bytes));
  Wipe(frame);
  return bytes;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> SnapshotCodec::Decode(
    std::string_view bytes) const {
  Parts parts;
  absl::Status status = Read(bytes, parts);
  if (status.ok()) status = CheckFingerprint(parts.header, fingerprint_);
  if (status.ok()) status = CheckState(parts.header, limits_.max_state_bytes);
  if (!status.ok()) return status;
  auto state = ReadState(parts);
  if (!state.ok()) return state.status();
  auto snapshot = SnapshotOf(std::move(parts.header), *std::move(state));
  status = CheckSnapshot(*snapshot, limits_.num_ids);
  if (status.ok() && snapshot->state != nullptr && limits_.check_state) {
    status = limits_.check_state(*snapshot->state, snapshot->position);
  }
  if (!status.ok()) return Damaged(std::string(status.message()));
  return snapshot;
}

}  // namespace flash
