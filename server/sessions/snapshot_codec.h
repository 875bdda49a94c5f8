// Snapshots as bytes, and back.
//
//   8 bytes  "FLASHSNP"
//   u32      format version
//   u32      bytes of the header
//   header   flash.v1.SnapshotHeader (snapshot.proto): the fingerprint, and all
//            of the snapshot but the state
//   state    LanguageModel::Save(), as it is or as one zstd frame
//   16 bytes DigestOf() everything before
// Numbers are little-endian. Bytes after that are an error. Of every format
// version the first twelve bytes and the last sixteen are these.

#ifndef SERVER_SESSIONS_SNAPSHOT_CODEC_H_
#define SERVER_SESSIONS_SNAPSHOT_CODEC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "server/scheduler/snapshot.h"

namespace flash {

// What must be equal where a snapshot was made and where it is gone on with,
// for the bits of what follows to be equal.
struct Fingerprint {
  std::string model;         // digest of the weights and their config
  std::string tokenizer;     // digest of the tokenizer's file and type
  std::string state_format;  // LanguageModel::state_format()
  std::string numerics;      // ServerInfo.numerics
};

enum class SnapshotCompression { kNone, kZstd };

// What a snapshot may be in the model that it is decoded for.
struct SnapshotLimits {
  // The most that Decode() takes memory for, whatever the bytes say.
  int64_t max_state_bytes = int64_t{4} << 30;
  int64_t num_ids = int64_t{1} << 31;  // every id is below it
  // Whether these bytes are a state after so many tokens, as
  // LanguageModel::CheckState() says. Empty: all are.
  std::function<absl::Status(std::string_view state, int64_t position)>
      check_state = nullptr;
};

// Thread safety: const functions from any thread.
class SnapshotCodec {
 public:
  static constexpr uint32_t kFormatVersion = 1;
  // Of the header: of every snapshot that CheckSnapshot() passes it has less.
  static constexpr size_t kMaxHeaderBytes = size_t{1} << 20;

  SnapshotCodec(Fingerprint fingerprint, SnapshotCompression compression,
                SnapshotLimits limits = {})
      : fingerprint_(std::move(fingerprint)),
        compression_(compression),
        limits_(std::move(limits)) {}

  // REQUIRES: CheckSnapshot() passes the snapshot.
  std::string Encode(const Snapshot& snapshot) const;

  // Takes time in proportion to the bytes; copies the state once.
  //   DATA_LOSS: damaged or truncated, or no snapshot at all; says which.
  //   FAILED_PRECONDITION: made by another format, model, tokenizer, layout or
  //     numerics; says what differs, with both values.
  // A snapshot that is returned is whole: CheckSnapshot() and the limits' own
  // check have passed it, so nobody who goes on with it refuses it later. Takes
  // no more memory than the bytes' header can justify.
  absl::StatusOr<std::shared_ptr<const Snapshot>> Decode(
      std::string_view bytes) const;

 private:
  const Fingerprint fingerprint_;
  const SnapshotCompression compression_;
  const SnapshotLimits limits_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_SNAPSHOT_CODEC_H_
