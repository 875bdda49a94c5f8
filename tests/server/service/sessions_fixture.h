// Sessions over a real connection, in a store that a test can hold and break.

#ifndef TESTS_SERVER_SERVICE_SESSIONS_FIXTURE_H_
#define TESTS_SERVER_SERVICE_SESSIONS_FIXTURE_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/service/held_store.h"
#include "tests/server/service/service_fixture.h"
#include "tests/server/service/wire_details.h"

namespace flash {

inline v1::GenerateRequest GoOn(const std::string& session,
                                uint64_t max_tokens) {
  v1::GenerateRequest request;
  request.mutable_session()->set_id(session);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

inline v1::GenerateRequest Saved(v1::GenerateRequest request) {
  request.set_save_session(true);
  return request;
}

inline std::vector<uint32_t> Joined(std::vector<uint32_t> a,
                                    const std::vector<uint32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SessionsServiceTest : public ServiceTest {
 protected:
  SessionsServiceTest() {
    auto store = std::make_unique<HeldStore>();
    store_ = store.get();
    setup_.store = std::move(store);
    // Everything comes from the store, so that what a test does to it shows.
    setup_.sessions.cache_bytes = 0;
  }
  ~SessionsServiceTest() override {
    held_.store(false);
    store_->Release();
  }

  // Steps wait while held_.
  void MakeSteps() {
    setup_.before_step = [this] {
      in_step_.store(true);
      while (held_.load())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
  }

  // The calls of a caller, who is `owner` if there are several.
  template <typename Request, typename Result>
  grpc::Status Ask(grpc::Status (v1::Sessions::Stub::*method)(
                       grpc::ClientContext*, const Request&, Result*),
                   const Request& request, Result* result,
                   const std::string& owner = "") {
    grpc::ClientContext context;
    if (!owner.empty()) context.AddMetadata("x-tenant", owner);
    return (kept_.get()->*method)(&context, request, result);
  }
  grpc::Status Get(const std::string& id, v1::Session* session,
                   const std::string& owner = "") {
    v1::GetSessionRequest request;
    request.set_id(id);
    return Ask(&v1::Sessions::Stub::Get, request, session, owner);
  }
  grpc::Status Delete(const std::string& id, const std::string& owner = "") {
    v1::DeleteSessionRequest request;
    request.set_id(id);
    v1::DeleteSessionResult result;
    return Ask(&v1::Sessions::Stub::Delete, request, &result, owner);
  }
  grpc::Status Fork(const std::string& id, uint32_t count,
                    v1::ForkSessionResult* result,
                    const std::string& owner = "") {
    v1::ForkSessionRequest request;
    request.set_id(id);
    request.set_count(count);
    return Ask(&v1::Sessions::Stub::Fork, request, result, owner);
  }

  // The session's bytes; `chunks`: how long each was.
  grpc::Status Export(const std::string& id, std::string* bytes,
                      std::vector<size_t>* chunks = nullptr,
                      const std::string& owner = "") {
    v1::ExportSessionRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    if (!owner.empty()) context.AddMetadata("x-tenant", owner);
    const auto reader = kept_->Export(&context, request);
    v1::SnapshotChunk chunk;
    while (reader->Read(&chunk)) {
      if (chunks != nullptr) chunks->push_back(chunk.data().size());
      *bytes += chunk.data();
    }
    return reader->Finish();
  }
  grpc::Status Import(const std::string& bytes, v1::Session* session,
                      size_t chunk_bytes = 1000) {
    grpc::ClientContext context;
    const auto writer = kept_->Import(&context, session);
    for (size_t begin = 0; begin < bytes.size(); begin += chunk_bytes) {
      v1::SnapshotChunk chunk;
      chunk.set_data(bytes.substr(begin, chunk_bytes));
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  bool EventuallyFree(const std::string& id) {
    return Eventually([&](const EngineStats&) {
      v1::Session session;
      return Get(id, &session).ok() && !session.in_use();
    });
  }

  HeldStore* store_ = nullptr;
  std::atomic<bool> held_{false};
  std::atomic<bool> in_step_{false};
};

inline void ExpectError(const grpc::Status& status, grpc::StatusCode code,
                        const std::string& reason) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  EXPECT_EQ(DetailsOf(status).reason, reason) << status.error_message();
}

}  // namespace flash

#endif  // TESTS_SERVER_SERVICE_SESSIONS_FIXTURE_H_
