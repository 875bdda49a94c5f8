// What the tests of sessions share: servers on one store, at a time that they
// make, and texts.

#ifndef TESTS_SERVER_SESSIONS_SESSIONS_FIXTURE_H_
#define TESTS_SERVER_SESSIONS_SESSIONS_FIXTURE_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/model/digest.h"
#include "server/sessions/sessions.h"
#include "tests/server/sessions/troubled_store.h"

namespace flash {

inline constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
inline constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
inline constexpr absl::StatusCode kFailed =
    absl::StatusCode::kFailedPrecondition;
inline constexpr absl::StatusCode kFull = absl::StatusCode::kResourceExhausted;
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
inline constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

inline const std::string kAnn = "ann";
inline const std::string kBob = "bob";

inline std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

// Where a session stands in the store.
inline std::string NameOf(const std::string& owner, const std::string& id) {
  return absl::StrCat("sessions-", HexDigestOf(owner), "/", id);
}

inline std::shared_ptr<const std::string> Junk() {
  return std::make_shared<const std::string>("no snapshot");
}

// A text of `position` tokens and one pending, whose state says `text`.
inline std::shared_ptr<const Snapshot> Text(const std::string& text,
                                            int64_t position = 10) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->position = position;
  snapshot->state = std::make_shared<const std::string>(text);
  snapshot->pending = {7};
  snapshot->recent = {{7, true}};
  snapshot->place = Tokenizer::Place::kLater;
  return snapshot;
}

class SessionsTest : public testing::Test {
 protected:
  // One more server on the store.
  std::unique_ptr<Sessions> Server(const std::string& id,
                                   Sessions::Options options = {}) {
    options.server_id = id;
    options.now = [this] { return start_ + absl::Nanoseconds(passed_.load()); };
    return std::make_unique<Sessions>(options, &store_, &codec_);
  }
  void Pass(absl::Duration time) { passed_ += absl::ToInt64Nanoseconds(time); }

  std::string Create(const std::string& owner, const std::string& text) {
    const auto info = sessions_->Create(owner, "r0", Text(text), std::nullopt);
    EXPECT_TRUE(info.ok()) << info.status();
    return info->id;
  }
  std::string Read(Sessions& sessions, const std::string& owner,
                   const std::string& id) {
    const auto snapshot = sessions.Open(owner, id);
    return snapshot.ok() ? *(*snapshot)->state
                         : absl::StatusCodeToString(snapshot.status().code());
  }
  std::string Read(const std::string& id) { return Read(*sessions_, kAnn, id); }

  // Stores expire by the true time, so the false one begins there.
  const absl::Time start_ = absl::Now();
  std::atomic<int64_t> passed_{0};
  TroubledStore store_;
  const SnapshotCodec codec_{{"m", "t", "s", "n"}, SnapshotCompression::kNone};
  std::unique_ptr<Sessions> sessions_ = Server("one");
};

}  // namespace flash

#endif  // TESTS_SERVER_SESSIONS_SESSIONS_FIXTURE_H_
