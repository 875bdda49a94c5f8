// Sessions on their way out and in: whole or not at all, and not for ever.

#include "server/service/session_transfers.h"

#include <thread>

#include "gmock/gmock.h"
#include "tests/server/service/sessions_fixture.h"

namespace flash {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

using SessionTransfersTest = SessionsServiceTest;

TEST_F(SessionTransfersTest, ExportsAndImports) {
  Start();
  const auto begin = Stream(Saved(TextRequest(std::string(200'000, 'x'), 5)));
  std::string bytes;
  std::vector<size_t> chunks;
  ASSERT_TRUE(Export(begin.SessionId(), &bytes, &chunks).ok());
  EXPECT_GT(chunks.size(), 1u);
  for (const size_t size : chunks) EXPECT_LE(size, size_t{256} << 10);
  v1::Session session;
  const grpc::Status status = Import(bytes, &session, 100'000);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_NE(session.id(), begin.SessionId());
  EXPECT_EQ(session.num_tokens(), 200'006u);
  EXPECT_EQ(Stream(GoOn(session.id(), 9)).Ids(),
            Stream(GoOn(begin.SessionId(), 9)).Ids());
}

TEST_F(SessionTransfersTest, ImportsNothingThatIsDamagedCutOffOrTooLong) {
  setup_.server.limits.max_import_bytes = 10'000;
  Start();
  const auto begin = Stream(Saved(TextRequest("prompt", 5)));
  std::string bytes;
  ASSERT_TRUE(Export(begin.SessionId(), &bytes).ok());
  v1::Session session;
  std::string damaged = bytes;
  damaged[bytes.size() / 2] ^= 1;
  ExpectError(Import(damaged, &session), grpc::StatusCode::DATA_LOSS,
              "SESSION_DAMAGED");
  ExpectError(Import(bytes.substr(0, bytes.size() - 1), &session),
              grpc::StatusCode::DATA_LOSS, "SESSION_DAMAGED");
  ExpectError(Import("", &session), grpc::StatusCode::DATA_LOSS,
              "SESSION_DAMAGED");
  const grpc::Status status = Import(std::string(20'000, 'x'), &session);
  ExpectError(status, grpc::StatusCode::INVALID_ARGUMENT, "INVALID_REQUEST");
  EXPECT_THAT(DetailsOf(status).violations["data"], HasSubstr("10000"));
}

TEST_F(SessionTransfersTest, ImportsNothingThatCouldNotBeGoneOnWith) {
  Start();
  Snapshot snapshot;
  snapshot.position = 2;
  snapshot.state = std::make_shared<const std::string>(8, '\1');
  snapshot.pending = {259};
  snapshot.recent = {{259, false}};
  v1::Session session;
  EXPECT_TRUE(Import(codec_.Encode(snapshot), &session).ok());
  snapshot.pending = {260};
  snapshot.recent = {{260, false}};
  ExpectError(Import(codec_.Encode(snapshot), &session),
              grpc::StatusCode::DATA_LOSS, "SESSION_DAMAGED");
}

TEST_F(SessionTransfersTest, WaitsForNoImportForEver) {
  setup_.server.linger = milliseconds(200);
  Start();
  for (const bool drips : {false, true}) {
    grpc::ClientContext context;
    v1::Session session;
    const auto writer = kept_->Import(&context, &session);
    v1::SnapshotChunk chunk;
    chunk.set_data("F");
    while (writer->Write(chunk) && drips) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    const grpc::Status status = writer->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    // A machine that is slow may let even one that drips fall silent.
    EXPECT_THAT(status.error_message(),
                AnyOf(HasSubstr("sent nothing of the session for 200 ms"),
                      HasSubstr("send the session within 2000 ms")));
  }
}

TEST_F(SessionTransfersTest, CancelsAClientThatReadsNothing) {
  setup_.server.linger = milliseconds(50);
  Start();
  const auto begin = Stream(Saved(TextRequest(std::string(1'000'000, 'x'), 1)));
  v1::ExportSessionRequest request;
  request.set_id(begin.SessionId());
  grpc::ClientContext silent;
  const auto reader = kept_->Export(&silent, request);
  // Returns when the call has ended.
  const auto deadline = Clock::now() + kPatience;
  server_->Shutdown(deadline);
  EXPECT_LT(Clock::now(), deadline);
}

TEST_F(SessionTransfersTest, BoundsTheTransfersAtATime) {
  setup_.server.linger = kPatience;
  Start();
  constexpr int kNumWriters = 17;  // one too many
  grpc::ClientContext contexts[kNumWriters];
  v1::Session sessions[kNumWriters];
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::SnapshotChunk>>> writers;
  for (int i = 0; i < kNumWriters; ++i) {
    writers.push_back(kept_->Import(&contexts[i], &sessions[i]));
  }
  // Writes to whatever call has ended fail, sooner or later.
  int refused = 0;
  ASSERT_TRUE(Eventually([&](const EngineStats&) {
    refused = (refused + 1) % kNumWriters;
    return !writers[refused]->Write(v1::SnapshotChunk());
  }));
  ExpectError(writers[refused]->Finish(), grpc::StatusCode::RESOURCE_EXHAUSTED,
              "QUEUE_FULL");
  std::string bytes;
  ExpectError(Export("any", &bytes), grpc::StatusCode::RESOURCE_EXHAUSTED,
              "QUEUE_FULL");
  contexts[(refused + 1) % kNumWriters].TryCancel();
  EXPECT_TRUE(Eventually([&](const EngineStats&) {
    return Export("any", &bytes).error_code() == grpc::StatusCode::NOT_FOUND;
  }));
}

}  // namespace
}  // namespace flash
