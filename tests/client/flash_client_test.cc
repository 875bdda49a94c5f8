// Sessions as bytes, over a real connection.

#include "client/flash_client.h"

#include "gmock/gmock.h"
#include "tests/client/scripted_server.h"

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
  EXPECT_TRUE(client
                  .ExportSession("s", call,
                                 [&](const std::string& data) {
                                   bytes += data;
                                   return true;
                                 })
                  .ok());
  EXPECT_EQ(bytes, server.snapshots()["s"]);
}

TEST(FlashClientTest, EndsAnExportThatNobodyTakes) {
  ScriptedServer server;
  server.snapshots()["s"] = Bytes(12'345);
  FlashClient client(server.address());
  CancellableCall call;
  const grpc::Status status =
      client.ExportSession("s", call, [](const std::string&) { return false; });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST(FlashClientTest, ImportsInChunks) {
  ScriptedServer server;
  FlashClient client(server.address());
  CancellableCall call;
  const std::string bytes = Bytes(3 * kMaxSnapshotChunk + 17);
  size_t sent = 0;
  v1::Session session;
  EXPECT_TRUE(client
                  .ImportSession(
                      [&] {
                        std::string data =
                            bytes.substr(sent, kMaxSnapshotChunk);
                        sent += data.size();
                        return data;
                      },
                      call, session)
                  .ok());
  EXPECT_EQ(session.num_bytes(), bytes.size());
  EXPECT_EQ(server.snapshots()["imported"], bytes);
  EXPECT_THAT(server.largest_chunk(), Le(kMaxSnapshotChunk));
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
