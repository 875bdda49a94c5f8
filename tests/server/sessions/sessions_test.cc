#include "server/sessions/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/sessions/sessions_fixture.h"

namespace flash {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

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
