#include "server/sessions/session_head.h"

#include "flash/v1/snapshot.pb.h"

namespace flash {

std::string WriteSessionHead(const SessionHead& head) {
  v1::SessionHead wire;
  wire.set_owner(head.owner);
  wire.set_snapshot(head.snapshot);
  wire.set_num_tokens(head.num_tokens);
  wire.set_num_pending(head.num_pending);
  wire.set_epoch(head.epoch);
  wire.set_written_epoch(head.written_epoch);
  wire.set_first_epoch(head.first_epoch);
  wire.set_written_first_epoch(head.written_first_epoch);
  wire.set_repeated_epoch(head.repeated_epoch);
  wire.set_created(absl::ToUnixMicros(head.created));
  wire.set_used(absl::ToUnixMicros(head.used));
  wire.set_expires(absl::ToUnixMicros(head.expires));
  wire.set_time_to_live(absl::ToInt64Microseconds(head.time_to_live));
  wire.set_last_request(head.last_request);
  if (head.lease.has_value()) {
    wire.mutable_lease()->set_request(head.lease->request);
    wire.mutable_lease()->set_server(head.lease->server);
    wire.mutable_lease()->set_ends(absl::ToUnixMicros(head.lease->ends));
  }
  return wire.SerializeAsString();
}

absl::StatusOr<SessionHead> ReadSessionHead(std::string_view bytes) {
  v1::SessionHead wire;
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      wire.snapshot().empty()) {
    return absl::DataLossError("what the store has of it cannot be read");
  }
  SessionHead head;
  head.owner = wire.owner();
  head.snapshot = wire.snapshot();
  head.num_tokens = static_cast<int64_t>(wire.num_tokens());
  head.num_pending = static_cast<int64_t>(wire.num_pending());
  head.epoch = static_cast<int64_t>(wire.epoch());
  head.written_epoch = static_cast<int64_t>(wire.written_epoch());
  head.first_epoch = static_cast<int64_t>(wire.first_epoch());
  head.written_first_epoch = static_cast<int64_t>(wire.written_first_epoch());
  head.repeated_epoch = static_cast<int64_t>(wire.repeated_epoch());
  head.created = absl::FromUnixMicros(wire.created());
  head.used = absl::FromUnixMicros(wire.used());
  head.expires = absl::FromUnixMicros(wire.expires());
  head.time_to_live = absl::Microseconds(wire.time_to_live());
  head.last_request = wire.last_request();
  if (wire.has_lease()) {
    head.lease = {.request = wire.lease().request(),
                  .server = wire.lease().server(),
                  .ends = absl::FromUnixMicros(wire.lease().ends())};
  }
  return head;
}

}  // namespace flash
