#include "server/sessions/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model/digest.h"
#include "tests/server/sessions/troubled_store.h"

namespace flash {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kFailed = absl::StatusCode::kFailedPrecondition;
constexpr absl::StatusCode kFull = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

const std::string kAnn = "ann";
const std::string kBob = "bob";

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

// Where a session stands in the store.
std::string NameOf(const std::string& owner, const std::string& id) {
  return absl::StrCat("sessions-", HexDigestOf(owner), "/", id);
}

std::shared_ptr<const std::string> Junk() {
  return std::make_shared<const std::string>("no snapshot");
}

// A text of `position` tokens and one pending, whose state says `text`.
std::shared_ptr<const Snapshot> Text(const std::string& text,
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

TEST_F(SessionsTest, GivesBackWhatWasMade) {
  const auto info =
      sessions_->Create(kAnn, "r1", Text("once", 1000), std::nullopt);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->num_tokens, 1001);
  EXPECT_EQ(info->num_pending, 1);
  EXPECT_GT(info->bytes, 4);
  EXPECT_EQ(info->epoch, 0);
  EXPECT_FALSE(info->in_use);
  EXPECT_EQ(info->last_request, "r1");
  EXPECT_EQ(info->expires - info->created, absl::Hours(24));
  EXPECT_EQ(Read(info->id), "once");
  // Without this server's cache.
  EXPECT_EQ(Read(*Server("two"), kAnn, info->id), "once");
}

TEST_F(SessionsTest, GivesIdsThatNobodyGuesses) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = Create(kAnn, "x");
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100u);
}

TEST_F(SessionsTest, KeepsWhatOthersHaveFromEveryCall) {
  const std::string id = Create(kAnn, "secret");
  const std::string unknown(32, '0');
  const auto expect_unknown = [&](const absl::Status& hers,
                                  const absl::Status& nobodys) {
    EXPECT_EQ(hers.code(), kNotFound);
    std::string message = MessageOf(nobodys);
    message.replace(message.find(unknown), unknown.size(), id);
    EXPECT_EQ(MessageOf(hers), message);
  };
  Sessions& s = *sessions_;
  expect_unknown(s.Open(kBob, id).status(), s.Open(kBob, unknown).status());
  expect_unknown(s.Get(kBob, id).status(), s.Get(kBob, unknown).status());
  expect_unknown(s.Claim(kBob, id, "r", 0).status(),
                 s.Claim(kBob, unknown, "r", 0).status());
  expect_unknown(s.Fork(kBob, id, 1).status(),
                 s.Fork(kBob, unknown, 1).status());
  expect_unknown(s.Export(kBob, id).status(), s.Export(kBob, unknown).status());
  expect_unknown(s.Delete(kBob, id), s.Delete(kBob, unknown));
  expect_unknown(s.Pin(kBob, id, absl::Hours(1)).status(),
                 s.Pin(kBob, unknown, absl::Hours(1)).status());
  EXPECT_TRUE(s.List(kBob, "", 100)->sessions.empty());
  EXPECT_EQ(Read(id), "secret");
}

// Where two owners' folders are the same only the head tells them apart.
TEST_F(SessionsTest, ComparesTheOwnerInTheHeadItself) {
  const std::string id = Create(kAnn, "secret");
  SessionHead head;
  head.owner = kBob;
  head.snapshot = "s";
  head.expires = start_ + absl::Hours(1);
  ASSERT_TRUE(store_
                  .Put(NameOf(kAnn, id), {WriteSessionHead(head), Junk()}, {},
                       head.expires)
                  .ok());
  EXPECT_EQ(sessions_->Get(kAnn, id).status().code(), kNotFound);
  EXPECT_EQ(sessions_->Export(kAnn, id).status().code(), kNotFound);
  EXPECT_TRUE(sessions_->List(kAnn, "", 10)->sessions.empty());
}

TEST_F(SessionsTest, RefusesIdsThatItNeverGives) {
  for (const std::string& id :
       {std::string(), std::string("../x"), std::string(32, 'G'),
        std::string(31, 'a'), std::string(33, 'a'), std::string(32, 'A'),
        std::string(1000000, 'a')}) {
    const absl::Status status = sessions_->Get(kAnn, id).status();
    EXPECT_EQ(status.code(), kNotFound);
    EXPECT_LT(status.message().size(), 200u);
  }
}

TEST_F(SessionsTest, LetsOneRequestWorkOnASession) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(*claim->snapshot->state, "one");
  EXPECT_EQ(claim->epoch, 1);
  EXPECT_TRUE(sessions_->Get(kAnn, id)->in_use);
  const auto two = Server("two");
  for (Sessions* server : {sessions_.get(), two.get()}) {
    const absl::Status refused =
        server->Claim(kAnn, id, "r2", std::nullopt).status();
    EXPECT_EQ(refused.code(), kAborted);
    EXPECT_THAT(MessageOf(refused), AllOf(HasSubstr(id), HasSubstr("\"r1\""),
                                          HasSubstr("\"one\"")));
  }
  EXPECT_EQ(Read(*two, kAnn, id), "one");  // reading is for everybody

  const auto info = sessions_->Commit(*claim, Text("one, two", 20));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->num_tokens, 21);
  EXPECT_EQ(info->last_request, "r1");
  EXPECT_FALSE(info->in_use);
  EXPECT_EQ(Read(*two, kAnn, id), "one, two");
  EXPECT_EQ(Read(id), "one, two");
  const auto next = two->Claim(kAnn, id, "r2", std::nullopt);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->epoch, 2);
  EXPECT_EQ(*next->snapshot->state, "one, two");
}

TEST_F(SessionsTest, LeavesAReleasedSessionAsItWas) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  sessions_->Release(*claim);
  EXPECT_FALSE(sessions_->Get(kAnn, id)->in_use);
  EXPECT_EQ(Read(id), "one");
  EXPECT_EQ(sessions_->Commit(*claim, Text("late")).status().code(), kAborted);
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r2", std::nullopt)->epoch, 2);
}

TEST_F(SessionsTest, WritesAClaimOnce) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Commit(*claim, Text("two")).ok());
  EXPECT_EQ(sessions_->Commit(*claim, Text("three")).status().code(), kAborted);
  sessions_->Release(*claim);
  EXPECT_EQ(Read(id), "two");
}

TEST_F(SessionsTest, TakesASessionOverFromWhoeverHoldsIt) {
  const std::string id = Create(kAnn, "one");
  const auto two = Server("two");
  const auto old = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  EXPECT_EQ(two->Claim(kAnn, id, "r1", old->epoch + 1).status().code(),
            kAborted);
  const auto taken = two->Claim(kAnn, id, "r1", old->epoch);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken->snapshot->state, "one");
  EXPECT_GT(taken->epoch, old->epoch);

  const absl::Status lost = sessions_->Commit(*old, Text("old")).status();
  EXPECT_EQ(lost.code(), kAborted);
  EXPECT_THAT(MessageOf(lost), HasSubstr(id));
  sessions_->Release(*old);  // is the other's now, and stays so
  EXPECT_TRUE(two->Get(kAnn, id)->in_use);
  // A second one that takes over the same claim is too late.
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r1", old->epoch).status().code(),
            kAborted);
  EXPECT_TRUE(two->Commit(*taken, Text("new")).ok());
  EXPECT_EQ(Read(id), "new");
  EXPECT_EQ(sessions_->stats().lost_claims, 1);
}

TEST_F(SessionsTest, TakesNothingOverThatHasBeenWrittenSince) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Commit(*claim, Text("two")).ok());
  const absl::Status status =
      sessions_->Claim(kAnn, id, "r1", claim->epoch).status();
  EXPECT_EQ(status.code(), kFailed);
  EXPECT_THAT(MessageOf(status), HasSubstr("\"r1\""));
}

TEST_F(SessionsTest, EndsTheClaimsOfAServerThatHasDied) {
  const std::string id = Create(kAnn, "one");
  std::optional<SessionClaim> claim;
  {
    const auto dying = Server("dying");
    claim = *dying->Claim(kAnn, id, "r1", std::nullopt);
  }
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r2", std::nullopt).status().code(),
            kAborted);
  Pass(absl::Seconds(16));
  EXPECT_FALSE(sessions_->Get(kAnn, id)->in_use);
  const auto next = sessions_->Claim(kAnn, id, "r2", std::nullopt);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(Server("risen")->Commit(*claim, Text("late")).status().code(),
            kAborted);
}

TEST_F(SessionsTest, WritesAClaimThatHasEndedIfNobodyElseCame) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  Pass(absl::Minutes(1));
  EXPECT_TRUE(sessions_->Commit(*claim, Text("two")).ok());
}

TEST_F(SessionsTest, RenewsTheClaimsThatItHolds) {
  Sessions::Options options;
  options.lease = absl::Milliseconds(30);
  const auto renewing = Server("renewing", options);
  const std::string id = Create(kAnn, "one");
  const auto claim = renewing->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(claim.ok());
  for (int round = 0; round < 3; ++round) {
    Pass(absl::Seconds(1));
    // Sooner or later it has noticed what time it is.
    while (!sessions_->Get(kAnn, id)->in_use) std::this_thread::yield();
  }
  EXPECT_TRUE(renewing->Commit(*claim, Text("two")).ok());
}

TEST_F(SessionsTest, NoticesThatAClaimWasLost) {
  Sessions::Options options;
  options.lease = absl::Milliseconds(30);
  const auto renewing = Server("renewing", options);
  const std::string id = Create(kAnn, "one");
  const auto claim = renewing->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Claim(kAnn, id, "r1", claim->epoch).ok());
  while (renewing->stats().lost_claims == 0) std::this_thread::yield();
  EXPECT_EQ(renewing->Commit(*claim, Text("two")).status().code(), kAborted);
  EXPECT_EQ(renewing->stats().lost_claims, 1);
}

TEST_F(SessionsTest, LetsOneOfManyServersClaim) {
  const std::string id = Create(kAnn, "one");
  constexpr int kServers = 8;
  std::vector<std::unique_ptr<Sessions>> servers;
  for (int i = 0; i < kServers; ++i) {
    servers.push_back(Server(absl::StrCat("server ", i)));
  }
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> claimed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kServers; ++i) {
      threads.emplace_back([&, i] {
        const auto claim =
            servers[i]->Claim(kAnn, id, absl::StrCat("r", i), std::nullopt);
        if (!claim.ok()) {
          EXPECT_EQ(claim.status().code(), kAborted) << claim.status();
          return;
        }
        ++claimed;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(claimed, 1);
    Pass(absl::Minutes(1));
  }
}

// Whoever wrote last was told so, and everybody else that he did not.
TEST_F(SessionsTest, LosesNoWriteThatItAcknowledged) {
  const std::string id = Create(kAnn, "0");
  constexpr int kServers = 4;
  constexpr int kRounds = 50;
  std::atomic<int> acknowledged{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kServers; ++i) {
    threads.emplace_back([&, i] {
      const auto server = Server(absl::StrCat("server ", i));
      for (int round = 0; round < kRounds; ++round) {
        auto claim = server->Claim(kAnn, id, "r", std::nullopt);
        if (!claim.ok()) continue;
        const int before = std::stoi(*claim->snapshot->state);
        if (server->Commit(*claim, Text(absl::StrCat(before + 1))).ok()) {
          ++acknowledged;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(acknowledged, 0);
  EXPECT_EQ(Read(id), absl::StrCat(acknowledged.load()));
}

TEST_F(SessionsTest, PinsASessionThatIsBeingWorkedOn) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Pin(kAnn, id, absl::Hours(100)).ok());
  const auto info = sessions_->Commit(*claim, Text("two"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->expires - info->used, absl::Hours(100));
}

TEST_F(SessionsTest, ForgetsWhatWasNotUsedForItsTimeToLive) {
  const std::string id = Create(kAnn, "one");
  const std::string other =
      sessions_->Create(kAnn, "r", Text("x"), absl::Seconds(50))->id;
  Pass(absl::Seconds(49));
  EXPECT_EQ(Read(other), "x");
  Pass(absl::Seconds(49));
  EXPECT_EQ(Read(other), "x");
  Pass(absl::Seconds(51));
  EXPECT_EQ(Read(other), "NOT_FOUND");
  EXPECT_EQ(sessions_->List(kAnn, "", 10)->sessions.size(), 1u);
  Pass(absl::Hours(25));
  EXPECT_EQ(Read(id), "NOT_FOUND");
}

TEST_F(SessionsTest, LivesAsLongAsARequestHoldsIt) {
  const auto info = sessions_->Create(kAnn, "r", Text("x"), absl::Seconds(1));
  const auto claim = sessions_->Claim(kAnn, info->id, "r1", std::nullopt);
  Pass(absl::Seconds(15));
  EXPECT_TRUE(sessions_->Commit(*claim, Text("y")).ok());
  EXPECT_EQ(Read(info->id), "y");
}

TEST_F(SessionsTest, RefusesTimesToLiveThatAreNone) {
  const std::string id = Create(kAnn, "one");
  for (const absl::Duration ttl :
       {absl::ZeroDuration(), -absl::Seconds(1), absl::Hours(24 * 31),
        absl::InfiniteDuration()}) {
    EXPECT_EQ(sessions_->Pin(kAnn, id, ttl).status().code(), kInvalid);
    EXPECT_EQ(sessions_->Create(kAnn, "r", Text("x"), ttl).status().code(),
              kInvalid);
  }
}

TEST_F(SessionsTest, ListsEachSessionOnce) {
  std::vector<std::string> ids;
  for (int i = 0; i < 25; ++i) ids.push_back(Create(kAnn, "x"));
  Create(kBob, "y");
  std::vector<std::string> listed;
  std::string from;
  do {
    const auto page = sessions_->List(kAnn, from, 10);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const SessionInfo& info : page->sessions) listed.push_back(info.id);
    from = page->next;
  } while (!from.empty());
  EXPECT_THAT(listed, UnorderedElementsAreArray(ids));
}

TEST_F(SessionsTest, ForksGoTheirOwnWays) {
  const std::string id = Create(kAnn, "trunk");
  const auto forks = sessions_->Fork(kAnn, id, 3);
  ASSERT_TRUE(forks.ok()) << forks.status();
  ASSERT_EQ(forks->size(), 3u);
  for (const SessionInfo& fork : *forks) {
    EXPECT_EQ(fork.num_tokens, 11);
    const auto claim = sessions_->Claim(kAnn, fork.id, "r", std::nullopt);
    ASSERT_TRUE(claim.ok()) << claim.status();
    EXPECT_EQ(*claim->snapshot->state, "trunk");
    ASSERT_TRUE(sessions_->Commit(*claim, Text(fork.id)).ok());
  }
  EXPECT_EQ(Read(id), "trunk");
  for (const SessionInfo& fork : *forks) EXPECT_EQ(Read(fork.id), fork.id);
  // The trunk was decoded by nobody: it was here all the time.
  EXPECT_EQ(sessions_->stats().cache_misses, 0);
}

TEST_F(SessionsTest, ForksWhatARequestHoldsAsItWasBefore) {
  const std::string id = Create(kAnn, "trunk");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  const auto forks = sessions_->Fork(kAnn, id, 1);
  ASSERT_TRUE(sessions_->Commit(*claim, Text("longer")).ok());
  EXPECT_FALSE(forks->front().in_use);
  EXPECT_EQ(Read(forks->front().id), "trunk");
}

TEST_F(SessionsTest, ForksAllOrNone) {
  const std::string id = Create(kAnn, std::string(1000, 't'));
  int left = 5;
  store_.BeforeWrites([&] {
    return --left == 0 ? absl::ResourceExhaustedError("full")
                       : absl::OkStatus();
  });
  EXPECT_EQ(sessions_->Fork(kAnn, id, 10).status().code(), kFull);
  EXPECT_EQ(sessions_->List(kAnn, "", 100)->sessions.size(), 1u);
  EXPECT_EQ(sessions_->Fork(kAnn, id, 0).status().code(), kInvalid);
  EXPECT_EQ(sessions_->Fork(kAnn, id, 1025).status().code(), kInvalid);
}

TEST_F(SessionsTest, DeletesWhatNobodyHolds) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  const absl::Status held = sessions_->Delete(kAnn, id);
  EXPECT_EQ(held.code(), kAborted);
  EXPECT_THAT(MessageOf(held), HasSubstr("\"r1\""));
  sessions_->Release(*claim);
  EXPECT_TRUE(sessions_->Delete(kAnn, id).ok());
  EXPECT_EQ(Read(id), "NOT_FOUND");
  EXPECT_EQ(sessions_->stats().cached_sessions, 0);
}

TEST_F(SessionsTest, ExportsWhatAnotherServerImports) {
  const std::string id = Create(kAnn, "far away");
  const auto bytes = sessions_->Export(kAnn, id);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  TroubledStore elsewhere;
  Sessions other({}, &elsewhere, &codec_);
  const auto info = other.Import(kBob, **bytes);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_NE(info->id, id);
  EXPECT_EQ(info->num_tokens, 11);
  EXPECT_EQ(Read(other, kBob, info->id), "far away");
  EXPECT_EQ(**other.Export(kBob, info->id), **bytes);

  std::string damaged = **bytes;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_EQ(other.Import(kBob, damaged).status().code(), kDataLoss);
  const SnapshotCodec foreign({"m2", "t", "s", "n"},
                              SnapshotCompression::kNone);
  EXPECT_EQ(other.Import(kBob, foreign.Encode(*Text("x"))).status().code(),
            kFailed);
  EXPECT_EQ(other.List(kBob, "", 10)->sessions.size(), 1u);
}

TEST_F(SessionsTest, SaysWhichSessionIsFromAnotherBuild) {
  const std::string id = Create(kAnn, "old");
  const SnapshotCodec newer({"m", "t", "s", "n2"}, SnapshotCompression::kNone);
  Sessions updated({}, &store_, &newer);
  for (const absl::Status& status :
       {updated.Open(kAnn, id).status(),
        updated.Claim(kAnn, id, "r", std::nullopt).status()}) {
    EXPECT_EQ(status.code(), kFailed);
    EXPECT_THAT(
        MessageOf(status),
        AllOf(HasSubstr(id), HasSubstr("numerics is \"n\", not \"n2\"")));
  }
  // It is nobody's after that.
  EXPECT_TRUE(sessions_->Claim(kAnn, id, "r", std::nullopt).ok());
}

TEST_F(SessionsTest, KeepsEverythingWhileTheStoreIsDown) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  store_.Break(absl::UnavailableError("redis://r:6379 does not answer"));
  EXPECT_EQ(
      sessions_->Create(kAnn, "r", Text("x"), std::nullopt).status().code(),
      kUnavailable);
  EXPECT_EQ(sessions_->Open(kAnn, id).status().code(), kUnavailable);
  EXPECT_EQ(sessions_->List(kAnn, "", 1).status().code(), kUnavailable);
  EXPECT_EQ(sessions_->Delete(kAnn, id).code(), kUnavailable);
  const absl::Status failed = sessions_->Commit(*claim, Text("two")).status();
  EXPECT_EQ(failed.code(), kUnavailable);
  EXPECT_THAT(MessageOf(failed),
              AllOf(HasSubstr(id), HasSubstr("redis://r:6379")));
  sessions_->Release(*claim);
  EXPECT_GT(sessions_->stats().store_errors, 0);

  store_.Break(absl::OkStatus());
  EXPECT_EQ(Read(id), "one");
  EXPECT_TRUE(sessions_->Commit(*claim, Text("two")).ok());  // once more
  EXPECT_EQ(Read(id), "two");
}

TEST_F(SessionsTest, KeepsTheOldTextWhereTheNewOneFindsNoRoom) {
  TroubledStore small(3000);
  Sessions sessions({}, &small, &codec_);
  const auto info =
      sessions.Create(kAnn, "r", Text(std::string(1000, 'a')), std::nullopt);
  ASSERT_TRUE(info.ok()) << info.status();
  const auto claim = sessions.Claim(kAnn, info->id, "r1", std::nullopt);
  EXPECT_EQ(
      sessions.Commit(*claim, Text(std::string(9000, 'b'))).status().code(),
      kFull);
  sessions.Release(*claim);
  EXPECT_EQ(Read(sessions, kAnn, info->id), std::string(1000, 'a'));
  EXPECT_FALSE(sessions.Get(kAnn, info->id)->in_use);
  EXPECT_EQ(
      sessions.Create(kAnn, "r", Text(std::string(9000, 'b')), std::nullopt)
          .status()
          .code(),
      kFull);
}

TEST_F(SessionsTest, SaysWhenWhatIsStoredIsDamaged) {
  const std::string id = Create(kAnn, "one");
  const std::string name = NameOf(kAnn, id);
  const std::string head = store_.GetHead(name)->head;
  ASSERT_TRUE(
      store_.Put(name, {head, Junk()}, {}, absl::InfiniteFuture()).ok());
  const auto two = Server("two");
  const absl::Status status = two->Open(kAnn, id).status();
  EXPECT_EQ(status.code(), kDataLoss);
  EXPECT_THAT(MessageOf(status), HasSubstr(id));
  ASSERT_TRUE(
      store_.Put(name, {"\xFF", Junk()}, {}, absl::InfiniteFuture()).ok());
  EXPECT_EQ(two->Get(kAnn, id).status().code(), kDataLoss);
  EXPECT_TRUE(two->List(kAnn, "", 10)->sessions.empty());
}

TEST_F(SessionsTest, LetsAnOwnerHaveSoManyAndNoMore) {
  Sessions::Options options;
  options.max_sessions_per_owner = 3;
  const auto strict = Server("strict", options);
  Create(kAnn, "made elsewhere");
  const auto first = strict->Create(kAnn, "r", Text("x"), std::nullopt);
  ASSERT_TRUE(first.ok());
  const absl::Status status = strict->Fork(kAnn, first->id, 2).status();
  EXPECT_EQ(status.code(), kFull);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("has 2"), HasSubstr("the most is 3")));
  EXPECT_TRUE(strict->Fork(kAnn, first->id, 1).ok());
  EXPECT_EQ(strict->Create(kAnn, "r", Text("x"), std::nullopt).status().code(),
            kFull);
  EXPECT_TRUE(strict->Create(kBob, "r", Text("x"), std::nullopt).ok());
  EXPECT_TRUE(strict->Delete(kAnn, first->id).ok());
  EXPECT_TRUE(strict->Create(kAnn, "r", Text("x"), std::nullopt).ok());
  // What others delete is noticed when the store is asked again.
  const auto all = sessions_->List(kAnn, "", 10);
  for (const SessionInfo& info : all->sessions) {
    ASSERT_TRUE(sessions_->Delete(kAnn, info.id).ok());
  }
  Pass(absl::Minutes(1));
  EXPECT_TRUE(strict->Create(kAnn, "r", Text("x"), std::nullopt).ok());
}

TEST_F(SessionsTest, DropsTheLeastRecentlyUsedFromItsCache) {
  Sessions::Options options;
  options.cache_bytes = 3500;
  const auto small = Server("small", options);
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(
        small->Create(kAnn, "r", Text(std::string(1000, 'a' + i)), std::nullopt)
            ->id);
    EXPECT_LE(small->stats().cached_bytes, 3500);
  }
  EXPECT_EQ(small->stats().cached_sessions, 2);
  EXPECT_EQ(Read(*small, kAnn, ids[0]), std::string(1000, 'a'));
  EXPECT_EQ(small->stats().cache_misses, 1);
  EXPECT_EQ(Read(*small, kAnn, ids[0]), std::string(1000, 'a'));
  EXPECT_EQ(Read(*small, kAnn, ids[3]), std::string(1000, 'd'));
  EXPECT_EQ(small->stats().cache_hits, 2);
}

TEST_F(SessionsTest, HandsOutWhatIsCachedWithoutACopy) {
  const auto text = Text("one");
  const auto info = sessions_->Create(kAnn, "r", text, std::nullopt);
  EXPECT_EQ(sessions_->Claim(kAnn, info->id, "r", std::nullopt)->snapshot,
            text);
}

TEST_F(SessionsTest, KeepsTenThousandSessions) {
  std::vector<std::string> ids;
  for (int i = 0; i < 10000; ++i) ids.push_back(Create(kAnn, absl::StrCat(i)));
  for (int i = 0; i < 10000; i += 97) {
    const auto claim = sessions_->Claim(kAnn, ids[i], "r", std::nullopt);
    ASSERT_TRUE(claim.ok()) << claim.status();
    EXPECT_EQ(*claim->snapshot->state, absl::StrCat(i));
    ASSERT_TRUE(sessions_->Commit(*claim, Text(absl::StrCat("new ", i))).ok());
  }
  size_t listed = 0;
  std::string from;
  do {
    const auto page = sessions_->List(kAnn, from, 1000);
    ASSERT_TRUE(page.ok()) << page.status();
    listed += page->sessions.size();
    from = page->next;
  } while (!from.empty());
  EXPECT_EQ(listed, 10000u);
  EXPECT_EQ(Read(ids[97]), "new 97");
  EXPECT_EQ(Read(ids[98]), "98");
}

}  // namespace
}  // namespace flash
