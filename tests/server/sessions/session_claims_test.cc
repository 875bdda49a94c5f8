#include "server/sessions/session_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/sessions/sessions_fixture.h"

namespace flash {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SessionClaimsTest : public SessionsTest {
 protected:
  // A session of "one", to which request r1 has just added ", two".
  struct Written {
    std::string id;
    SessionClaim claim;
  };
  Written Write() {
    Written written;
    written.id = Create(kAnn, "one");
    written.claim = *sessions_->Claim(kAnn, written.id, "r1", std::nullopt);
    EXPECT_TRUE(sessions_->Commit(written.claim, Text("one, two", 20)).ok());
    return written;
  }
};

TEST_F(SessionClaimsTest, LetsOneRequestWorkOnASession) {
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

TEST_F(SessionClaimsTest, LeavesAReleasedSessionAsItWas) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  sessions_->Release(*claim);
  EXPECT_FALSE(sessions_->Get(kAnn, id)->in_use);
  EXPECT_EQ(Read(id), "one");
  EXPECT_EQ(sessions_->Commit(*claim, Text("late")).status().code(), kAborted);
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r2", std::nullopt)->epoch, 2);
}

TEST_F(SessionClaimsTest, WritesAClaimOnce) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Commit(*claim, Text("two")).ok());
  EXPECT_EQ(sessions_->Commit(*claim, Text("three")).status().code(), kAborted);
  sessions_->Release(*claim);
  EXPECT_EQ(Read(id), "two");
}

TEST_F(SessionClaimsTest, TakesASessionOverFromWhoeverHoldsIt) {
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

TEST_F(SessionClaimsTest, EndsTheClaimsOfAServerThatHasDied) {
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

TEST_F(SessionClaimsTest, WritesAClaimThatHasEndedIfNobodyElseCame) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  Pass(absl::Minutes(1));
  EXPECT_TRUE(sessions_->Commit(*claim, Text("two")).ok());
}

TEST_F(SessionClaimsTest, RenewsTheClaimsThatItHolds) {
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

TEST_F(SessionClaimsTest, NoticesThatAClaimWasLost) {
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

TEST_F(SessionClaimsTest, LetsOneOfManyServersClaim) {
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
TEST_F(SessionClaimsTest, LosesNoWriteThatItAcknowledged) {
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

TEST_F(SessionClaimsTest, LivesAsLongAsARequestHoldsIt) {
  const auto info = sessions_->Create(kAnn, "r", Text("x"), absl::Seconds(1));
  const auto claim = sessions_->Claim(kAnn, info->id, "r1", std::nullopt);
  Pass(absl::Seconds(15));
  EXPECT_TRUE(sessions_->Commit(*claim, Text("y")).ok());
  EXPECT_EQ(Read(info->id), "y");
}

TEST_F(SessionClaimsTest, PinsASessionThatIsBeingWorkedOn) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Pin(kAnn, id, absl::Hours(100)).ok());
  const auto info = sessions_->Commit(*claim, Text("two"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->expires - info->used, absl::Hours(100));
}

TEST_F(SessionClaimsTest, GivesARequestAgainWhatItHasWrittenOver) {
  const auto [id, claim] = Write();
  const auto two = Server("two");
  const auto again = two->Claim(kAnn, id, "r1", claim.epoch);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again->snapshot->state, "one");
  EXPECT_GT(again->epoch, claim.epoch);
  EXPECT_EQ(two->stats().repeated_answers, 1);
  // Meanwhile the session is what was acknowledged.
  EXPECT_EQ(Read(id), "one, two");
  EXPECT_TRUE(two->Commit(*again, Text("one, two", 20)).ok());
  EXPECT_EQ(Read(*two, kAnn, id), "one, two");
  // What comes next is the session's text, and nothing of before.
  EXPECT_EQ(*sessions_->Claim(kAnn, id, "r2", std::nullopt)->snapshot->state,
            "one, two");
}

TEST_F(SessionClaimsTest, GivesItAgainHoweverOftenItIsLost) {
  const auto [id, claim] = Write();
  std::vector<std::unique_ptr<Sessions>> servers;
  int64_t epoch = claim.epoch;
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    servers.push_back(Server(absl::StrCat("server ", round)));
    Sessions& server = *servers.back();
    const auto again = server.Claim(kAnn, id, "r1", epoch);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again->snapshot->state, "one");
    epoch = again->epoch;
    // Cut off before it has written, after it gave up, or after it has written.
    if (round % 3 == 1) server.Release(*again);
    if (round % 3 == 2) {
      ASSERT_TRUE(server.Commit(*again, Text("one, two", 20)).ok());
    }
    EXPECT_EQ(Read(id), "one, two");
    Pass(absl::Seconds(20));
  }
}

// Whatever epoch of its own the request was told last.
TEST_F(SessionClaimsTest, GivesItAgainByAnyEpochOfTheChain) {
  const std::string id = Create(kAnn, "one");
  const auto first = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  std::vector<int64_t> epochs = {first->epoch};
  // Taken over before anything was written; its Accepted is lost.
  const auto second = sessions_->Claim(kAnn, id, "r1", first->epoch);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(sessions_->Commit(*second, Text("one, two", 20)).ok());
  epochs.push_back(second->epoch);
  for (int round = 0; round < 20; ++round) {
    // kAnyEpoch: not even the first Accepted was heard.
    const int64_t known = round % 5 == 4 ? kAnyEpoch : epochs[round % 4 / 2];
    SCOPED_TRACE(testing::Message() << round << " by " << known);
    const auto again = sessions_->Claim(kAnn, id, "r1", known);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again->snapshot->state, "one");
    if (round % 3 == 0) {
      ASSERT_TRUE(sessions_->Commit(*again, Text("one, two", 20)).ok());
    } else {
      sessions_->Release(*again);
      sessions_->Release(*sessions_->Claim(kAnn, id, "r3", std::nullopt));
    }
    epochs[round % 2] = again->epoch;
    EXPECT_EQ(Read(id), "one, two");
  }
  for (const int64_t epoch : epochs) {
    EXPECT_EQ(sessions_->Claim(kAnn, id, "r2", epoch).status().code(), kFailed);
  }
}

TEST_F(SessionClaimsTest, TakesOverWhatItHeldWithoutKnowingItsEpoch) {
  const std::string id = Create(kAnn, "one");
  const auto new_one = sessions_->Claim(kAnn, id, "r1", kAnyEpoch);
  ASSERT_TRUE(new_one.ok()) << new_one.status();
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r2", kAnyEpoch).status().code(),
            kAborted);
  const auto taken = sessions_->Claim(kAnn, id, "r1", kAnyEpoch);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(sessions_->Commit(*new_one, Text("lost")).status().code(),
            kAborted);
  ASSERT_TRUE(sessions_->Commit(*taken, Text("one, two", 20)).ok());
  EXPECT_EQ(*sessions_->Claim(kAnn, id, "r1", new_one->epoch)->snapshot->state,
            "one");
}

TEST_F(SessionClaimsTest, GivesItAgainToNoOtherRequest) {
  const auto [id, claim] = Write();
  const absl::Status status =
      sessions_->Claim(kAnn, id, "r2", claim.epoch).status();
  EXPECT_EQ(status.code(), kFailed);
  EXPECT_THAT(MessageOf(status), HasSubstr("by request \"r1\""));
  EXPECT_EQ(*sessions_->Claim(kAnn, id, "r2", kAnyEpoch)->snapshot->state,
            "one, two");
}

TEST_F(SessionClaimsTest, GivesNothingAgainThatWasWrittenOverSince) {
  const auto [id, claim] = Write();
  const auto next = sessions_->Claim(kAnn, id, "r2", std::nullopt);
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r1", claim.epoch).status().code(),
            kAborted);  // r2 holds it
  ASSERT_TRUE(sessions_->Commit(*next, Text("one, two, three", 30)).ok());
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r1", claim.epoch).status().code(),
            kFailed);
  // The same name does not make it the same request: its epoch is another.
  const auto third = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  ASSERT_TRUE(sessions_->Commit(*third, Text("four", 40)).ok());
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r1", claim.epoch).status().code(),
            kFailed);
  EXPECT_EQ(*sessions_->Claim(kAnn, id, "r1", third->epoch)->snapshot->state,
            "one, two, three");
}

// What stands there is what was before another answer: whoever went on from it
// would lose the turns between.
TEST_F(SessionClaimsTest, GoesOnFromNoTextThatIsOlderThanItsOwn) {
  const auto [id, claim] = Write();
  const auto again = sessions_->Claim(kAnn, id, "r1", claim.epoch);
  ASSERT_TRUE(sessions_->Commit(*again, Text("one, two", 20)).ok());
  const auto next = sessions_->Claim(kAnn, id, "r2", std::nullopt);
  int writes = 0;
  store_.BeforeWrites([&] {
    return ++writes == 1 ? absl::UnavailableError("once") : absl::OkStatus();
  });
  ASSERT_TRUE(sessions_->Commit(*next, Text("one, two, three", 30)).ok());
  EXPECT_EQ(writes, 2);
  EXPECT_EQ(sessions_->Claim(kAnn, id, "r2", next->epoch).status().code(),
            kFailed);
  EXPECT_EQ(Read(id), "one, two, three");
}

TEST_F(SessionClaimsTest, WritesOverWhatIsDamaged) {
  const std::string id = Create(kAnn, "one");
  const auto claim = sessions_->Claim(kAnn, id, "r1", std::nullopt);
  const std::string name = NameOf(kAnn, id);
  const auto head = store_.GetHead(name);
  ASSERT_TRUE(
      store_
          .Put(name, {head->head, Junk()}, std::nullopt, absl::InfiniteFuture())
          .ok());
  EXPECT_TRUE(sessions_->Commit(*claim, Text("two")).ok());
  EXPECT_EQ(Read(*Server("two"), kAnn, id), "two");
}

TEST_F(SessionClaimsTest, GivesItAgainAfterOneThatGaveTheSessionUp) {
  const auto [id, claim] = Write();
  sessions_->Release(*sessions_->Claim(kAnn, id, "r2", std::nullopt));
  const auto again = sessions_->Claim(kAnn, id, "r1", claim.epoch);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again->snapshot->state, "one");
}

TEST_F(SessionClaimsTest, KeepsTheEarlierTextForAWhile) {
  const auto [id, claim] = Write();
  Pass(absl::Seconds(119));
  EXPECT_TRUE(sessions_->Claim(kAnn, id, "r1", claim.epoch).ok());
  const auto [other, late] = Write();
  Pass(absl::Seconds(121));
  const absl::Status status =
      sessions_->Claim(kAnn, other, "r1", late.epoch).status();
  EXPECT_EQ(status.code(), kFailed);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr(other), HasSubstr("it has the whole text")));
}

// Also those that expired and were not swept yet.
TEST_F(SessionClaimsTest, EarlierTextsThatHaveExpiredMakeRoomToo) {
  TroubledStore small(3000);
  Sessions::Options options;
  options.keep_earlier = absl::Milliseconds(1);
  Sessions sessions(options, &small, &codec_);
  const auto text = [](char c) { return Text(std::string(1000, c)); };
  const auto info = sessions.Create(kAnn, "r", text('a'), std::nullopt);
  ASSERT_TRUE(info.ok()) << info.status();
  const auto claim = sessions.Claim(kAnn, info->id, "r1", std::nullopt);
  ASSERT_TRUE(sessions.Commit(*claim, text('b')).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(sessions.Create(kAnn, "r", text('c'), std::nullopt).ok());
}

TEST_F(SessionClaimsTest, DeletesTheEarlierTextWithTheSession) {
  const auto [id, claim] = Write();
  const std::string folder = absl::StrCat("earlier-", HexDigestOf(kAnn));
  EXPECT_EQ(store_.List(folder, "", 10)->entries.size(), 1u);
  ASSERT_TRUE(sessions_->Delete(kAnn, id).ok());
  EXPECT_TRUE(store_.List(folder, "", 10)->entries.empty());
}

// Three texts fit: two sessions, and what one of them was before.
TEST_F(SessionClaimsTest, EarlierTextsMakeRoomForSessions) {
  TroubledStore small(4000);
  Sessions sessions({}, &small, &codec_);
  const auto text = [](char c) { return Text(std::string(1000, c)); };
  const auto first = sessions.Create(kAnn, "r", text('a'), std::nullopt);
  const auto second = sessions.Create(kAnn, "r", text('b'), std::nullopt);
  ASSERT_TRUE(second.ok()) << second.status();
  for (const SessionInfo& info : {*first, *second, *first}) {
    const auto claim = sessions.Claim(kAnn, info.id, "r1", std::nullopt);
    ASSERT_TRUE(claim.ok()) << claim.status();
    const auto committed = sessions.Commit(*claim, text('c'));
    EXPECT_TRUE(committed.ok()) << committed.status();
    // The last one written is the one that is kept.
    const auto again = sessions.Claim(kAnn, info.id, "r1", claim->epoch);
    ASSERT_TRUE(again.ok()) << again.status();
    sessions.Release(*again);
  }
  const auto third = sessions.Create(kAnn, "r", text('d'), std::nullopt);
  EXPECT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(Read(sessions, kAnn, first->id), std::string(1000, 'c'));
  EXPECT_EQ(Read(sessions, kAnn, third->id), std::string(1000, 'd'));
  EXPECT_EQ(sessions.Create(kAnn, "r", text('e'), std::nullopt).status().code(),
            kFull);
}

// Who has made room may find it taken.
TEST_F(SessionClaimsTest, ManyWriteWhereEarlierTextsFillTheStore) {
  constexpr int kThreads = 8;
  TroubledStore small(kThreads * 1200 + 2400);
  Sessions sessions({}, &small, &codec_);
  std::vector<std::string> ids;
  for (int i = 0; i < kThreads; ++i) {
    ids.push_back(
        sessions.Create(kAnn, "r", Text(std::string(1000, 'a')), std::nullopt)
            ->id);
  }
  std::vector<std::thread> threads;
  for (const std::string& id : ids) {
    threads.emplace_back([&sessions, &id] {
      for (int turn = 0; turn < 50; ++turn) {
        const auto claim = sessions.Claim(kAnn, id, "r1", std::nullopt);
        ASSERT_TRUE(claim.ok()) << claim.status();
        const auto written =
            sessions.Commit(*claim, Text(std::string(1000, 'b')));
        ASSERT_TRUE(written.ok()) << written.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The commit itself matters, not what it leaves beside it.
TEST_F(SessionClaimsTest, WritesASessionWhoseEarlierTextFindsNoRoom) {
  TroubledStore small(2600);
  Sessions sessions({}, &small, &codec_);
  const auto info =
      sessions.Create(kAnn, "r", Text(std::string(1500, 'a')), std::nullopt);
  ASSERT_TRUE(info.ok()) << info.status();
  const auto claim = sessions.Claim(kAnn, info->id, "r1", std::nullopt);
  const auto committed = sessions.Commit(*claim, Text(std::string(1500, 'b')));
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(Read(sessions, kAnn, info->id), std::string(1500, 'b'));
  EXPECT_EQ(sessions.Claim(kAnn, info->id, "r1", claim->epoch).status().code(),
            kFailed);
}

}  // namespace
}  // namespace flash
