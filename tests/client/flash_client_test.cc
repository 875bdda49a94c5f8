// Sessions as bytes, over a real connection.

#include "client/flash_client.h"

#include "client/error_text.h"
#include "gmock/gmock.h"
#include "tests/client/scripted_server.h"
#include "tests/client/slow_relay.h"

namespace flash {
namespace {

using testing::Le;

// Bytes of many values, not a multiple of any chunk.
std::string Bytes(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(i * 2654435761u >> 24);
  }
  return bytes;
}

TEST(FlashClientTest, ExportsAllBytesInOrder) {
  ScriptedServer server;
  server.snapshots()["s"] = Bytes(12'345);
  FlashClient client(server.address());
  CancellableCall call;
  std::string bytes;
  const grpc::Status status =
      client.ExportSession("s", call, [&](const std::string& data) {
        bytes += data;
        return true;
      });
  EXPECT_TRUE(status.ok()) << ErrorText(status);
  EXPECT_TRUE(bytes == server.snapshots()["s"]);
}

TEST(FlashClientTest, EndsAnExportThatNobodyTakes) {
  ScriptedServer server;
  FlashClient client(server.address());
  // All the bytes, and the end behind them, may be here before the cancel.
  for (const size_t num_bytes : {1, 12'345}) {
    server.snapshots()["s"] = Bytes(num_bytes);
    for (int i = 0; i < 50; ++i) {
      CancellableCall call;
      int num_calls = 0;
      const auto take_none = [&num_calls](const std::string&) {
        ++num_calls;
        return false;
      };
      EXPECT_EQ(client.ExportSession("s", call, take_none).error_code(),
                grpc::StatusCode::CANCELLED);
      EXPECT_EQ(num_calls, 1);
    }
  }
}

TEST(FlashClientTest, ImportsInChunks) {
  ScriptedServer server;
  FlashClient client(server.address());
  CancellableCall call;
  const std::string bytes = Bytes(3 * kMaxSnapshotChunk + 17);
  size_t sent = 0;
  v1::Session session;
  const auto next = [&] {
    std::string data = bytes.substr(sent, kMaxSnapshotChunk);
    sent += data.size();
    return data;
  };
  const grpc::Status status = client.ImportSession(next, call, session);
  EXPECT_TRUE(status.ok()) << ErrorText(status);
  EXPECT_EQ(session.num_bytes(), bytes.size());
  EXPECT_TRUE(server.snapshots()["imported"] == bytes);
  EXPECT_THAT(server.largest_chunk(), Le(kMaxSnapshotChunk));
}

TEST(FlashClientTest, BearsWithAConnectionThatTakesItsTime) {
  ScriptedServer server;
  const SlowRelay relay(server.address(), std::chrono::milliseconds(500));
  FlashClient client(relay.address());
  CancellableCall call;
  v1::ServerInfo info;
  const grpc::Status status = client.GetServerInfo(call, info);
  EXPECT_TRUE(status.ok()) << ErrorText(status);
}

TEST(FlashClientTest, CallsAfterACancelEndAtOnce) {
  ScriptedServer server;
  FlashClient client(server.address());
  CancellableCall call;
  v1::ServerInfo info;
  EXPECT_TRUE(client.GetServerInfo(call, info).ok());
  EXPECT_TRUE(call.Pause(std::chrono::milliseconds(1)));
  call.Cancel();
  EXPECT_FALSE(call.Pause(std::chrono::hours(1)));
  EXPECT_EQ(client.GetServerInfo(call, info).error_code(),
            grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace flash
