// What every blob store does, wherever it keeps the blobs.

#include "server/sessions/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/sessions/body.h"
#include "tests/server/sessions/store_place.h"

namespace flash {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kAborted = absl::StatusCode::kAborted;
constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kFull = absl::StatusCode::kResourceExhausted;

constexpr int64_t kNew = 0;  // as the version that is expected

Blob MakeBlob(std::string head, std::string body) {
  return {std::move(head), MakeBody(std::move(body))};
}

absl::Time Never() { return absl::InfiniteFuture(); }
absl::Time Past() { return absl::Now() - absl::Seconds(1); }

class BlobStoreTest : public testing::TestWithParam<const char*> {
 protected:
  BlobStoreTest() : place_(MakeStorePlace(GetParam())) {}

  void SetUp() override {
    if (place_ == nullptr) GTEST_SKIP() << "redis-server is not installed";
    store_ = place_->Open(kPlentyOfBytes);
  }

  // Writes whatever is there, and returns the version.
  int64_t Put(std::string_view name, const std::string& head,
              const std::string& body, absl::Time expires = Never()) {
    const absl::StatusOr<int64_t> version =
        store_->Put(name, MakeBlob(head, body), std::nullopt, expires);
    EXPECT_TRUE(version.ok()) << version.status();
    return version.value_or(-1);
  }

  // Head, body and version, or the error.
  std::string Read(std::string_view name) {
    const absl::StatusOr<BlobStore::Found> found = store_->Get(name);
    if (!found.ok()) return absl::StatusCodeToString(found.status().code());
    return absl::StrCat(found->blob.head, "+", *found->blob.body);
  }

  // The names in a folder, page by page.
  std::vector<std::string> Names(std::string_view folder, int limit) {
    std::set<std::string> names;
    std::string from;
    do {
      const absl::StatusOr<BlobStore::Page> page =
          store_->List(folder, from, limit);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) break;
      for (const BlobStore::Entry& entry : page->entries) {
        names.insert(entry.name);
      }
      from = page->next;
    } while (!from.empty());
    return {names.begin(), names.end()};
  }

  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<BlobStore> store_;
};

std::string KindOf(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}
INSTANTIATE_TEST_SUITE_P(All, BlobStoreTest,
                         testing::Values("memory", "directory", "redis"),
                         KindOf);

TEST_P(BlobStoreTest, ReturnsWhatWasPut) {
  std::string every_byte;
  for (int i = 0; i < 3 * 256; ++i) every_byte += static_cast<char>(i);
  const int64_t version = Put("folder/name", every_byte, every_byte + "!");

  const absl::StatusOr<BlobStore::Found> found = store_->Get("folder/name");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->blob.head, every_byte);
  EXPECT_EQ(*found->blob.body, every_byte + "!");
  EXPECT_EQ(found->version, version);
  const absl::StatusOr<BlobStore::Head> head = store_->GetHead("folder/name");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->head, every_byte);
  EXPECT_EQ(head->version, version);
  EXPECT_EQ(head->body_bytes, 3 * 256 + 1);
}

TEST_P(BlobStoreTest, KeepsEmptyHeadsAndBodies) {
  Put("a", "", "");
  EXPECT_EQ(Read("a"), "+");
}

TEST_P(BlobStoreTest, KeepsALargeBody) {
  std::string body(20'000'003, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * i);
  Put("large", "head", body);
  EXPECT_EQ(Read("large"), "head+" + body);
}

TEST_P(BlobStoreTest, KnowsNoBlobThatWasNeverPut) {
  EXPECT_EQ(store_->Get("a/b").status().code(), kNotFound);
  EXPECT_EQ(store_->GetHead("b").status().code(), kNotFound);
  EXPECT_EQ(store_->PutHead("a/b", "", 1, Never()).status().code(), kNotFound);
  EXPECT_EQ(store_->Delete("a/b", std::nullopt).code(), kNotFound);
  EXPECT_EQ(store_->Delete("a/b", 1).code(), kNotFound);
}

TEST_P(BlobStoreTest, NamesTheBlobThatIsNotThere) {
  EXPECT_THAT(std::string(store_->Get("a/b").status().message()),
              HasSubstr("a/b"));
}

TEST_P(BlobStoreTest, RaisesTheVersionWithEveryChange) {
  const int64_t first = Put("a", "1", "x");
  EXPECT_GE(first, 1);
  const int64_t second = Put("a", "2", "y");
  EXPECT_GT(second, first);
  const absl::StatusOr<int64_t> third =
      store_->PutHead("a", "3", second, Never());
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_GT(*third, second);
  EXPECT_EQ(store_->GetHead("a")->version, *third);
  EXPECT_EQ(Read("a"), "3+y");
}

TEST_P(BlobStoreTest, NeverGivesAVersionTwiceToOneName) {
  const int64_t before = Put("a", "", "");
  ASSERT_TRUE(store_->Delete("a", before).ok());
  EXPECT_GT(Put("a", "", ""), before);
}

TEST_P(BlobStoreTest, ChangesOnlyTheVersionThatIsExpected) {
  const int64_t version = Put("a", "1", "x");
  EXPECT_EQ(store_->Put("a", MakeBlob("2", "y"), version + 1, Never())
                .status()
                .code(),
            kAborted);
  EXPECT_EQ(store_->PutHead("a", "2", version + 1, Never()).status().code(),
            kAborted);
  EXPECT_EQ(store_->PutHead("a", "2", kNew, Never()).status().code(), kAborted);
  EXPECT_EQ(store_->Delete("a", version - 1).code(), kAborted);
  EXPECT_EQ(Read("a"), "1+x");

  EXPECT_TRUE(store_->Put("a", MakeBlob("2", "y"), version, Never()).ok());
  EXPECT_EQ(Read("a"), "2+y");
  EXPECT_EQ(
      store_->Put("a", MakeBlob("3", "z"), version, Never()).status().code(),
      kAborted);
}

TEST_P(BlobStoreTest, MakesANewOneOnlyWhereThereIsNone) {
  EXPECT_TRUE(store_->Put("a", MakeBlob("1", "x"), kNew, Never()).ok());
  EXPECT_EQ(store_->Put("a", MakeBlob("2", "y"), kNew, Never()).status().code(),
            kAborted);
  EXPECT_EQ(Read("a"), "1+x");
  EXPECT_EQ(store_->Put("b", MakeBlob("2", "y"), 7, Never()).status().code(),
            kAborted);
  EXPECT_EQ(Read("b"), "NOT_FOUND");
}

TEST_P(BlobStoreTest, DeletesWhatItIsTold) {
  const int64_t version = Put("f/a", "1", "x");
  Put("f/b", "2", "y");
  EXPECT_TRUE(store_->Delete("f/a", version).ok());
  EXPECT_EQ(Read("f/a"), "NOT_FOUND");
  EXPECT_EQ(Read("f/b"), "2+y");
  EXPECT_TRUE(store_->Delete("f/b", std::nullopt).ok());
  EXPECT_THAT(Names("f", 10), ElementsAre());
}

TEST_P(BlobStoreTest, KeepsABodyThatIsBeingReadWhileItIsReplaced) {
  Put("a", "1", "old");
  const absl::StatusOr<BlobStore::Found> found = store_->Get("a");
  Put("a", "2", "new");
  ASSERT_TRUE(store_->Delete("a", std::nullopt).ok());
  EXPECT_EQ(*found->blob.body, "old");
}

TEST_P(BlobStoreTest, ForgetsWhatHasExpired) {
  const int64_t version = Put("f/a", "1", "x", Past());
  EXPECT_EQ(Read("f/a"), "NOT_FOUND");
  EXPECT_EQ(store_->GetHead("f/a").status().code(), kNotFound);
  EXPECT_EQ(store_->PutHead("f/a", "2", version, Never()).status().code(),
            kNotFound);
  EXPECT_EQ(store_->Delete("f/a", version).code(), kNotFound);
  EXPECT_THAT(Names("f", 10), ElementsAre());
  EXPECT_TRUE(store_->Put("f/a", MakeBlob("2", "y"), kNew, Never()).ok());
  EXPECT_EQ(Read("f/a"), "2+y");
}

TEST_P(BlobStoreTest, ForgetsItOnceItsTimeHasCome) {
  Put("a", "1", "x", absl::Now() + absl::Milliseconds(100));
  while (Read("a") != "NOT_FOUND") absl::SleepFor(absl::Milliseconds(5));
}

TEST_P(BlobStoreTest, ChangesWhenABlobExpiresWithItsHead) {
  int64_t version = Put("a", "1", "x", absl::Now() + absl::Hours(1));
  version = store_->PutHead("a", "2", version, Never()).value();
  EXPECT_EQ(Read("a"), "2+x");
  EXPECT_TRUE(store_->PutHead("a", "3", version, Past()).ok());
  EXPECT_EQ(Read("a"), "NOT_FOUND");
}

TEST_P(BlobStoreTest, SweepsWhatHasExpiredAndNothingElse) {
  Put("f/a", "1", "x", Past());
  Put("f/b", "2", "y", absl::Now() + absl::Hours(1));
  Put("c", "3", "z");
  EXPECT_TRUE(store_->Sweep().ok());
  EXPECT_EQ(Read("f/a"), "NOT_FOUND");
  EXPECT_EQ(Read("f/b"), "2+y");
  EXPECT_EQ(Read("c"), "3+z");
}

TEST_P(BlobStoreTest, ListsAFolderPageByPage) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back(absl::StrCat("some/", 1000 + i));
    Put(names.back(), "", "x");
  }
  Put("some", "", "x");
  Put("somewhere/1000", "", "x");
  Put("som/1000", "", "x");
  for (const int limit : {1, 7, 100, 1000})
    EXPECT_EQ(Names("some", limit), names);
  EXPECT_THAT(Names("so", 10), ElementsAre());
  EXPECT_THAT(Names("somewhere", 10), ElementsAre("somewhere/1000"));
}

TEST_P(BlobStoreTest, ListsHeadsVersionsAndSizes) {
  const int64_t version = Put("f/a", "head", "body!");
  const absl::StatusOr<BlobStore::Page> page = store_->List("f", "", 10);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->entries.size(), 1);
  EXPECT_EQ(page->entries[0].name, "f/a");
  EXPECT_EQ(page->entries[0].head.head, "head");
  EXPECT_EQ(page->entries[0].head.version, version);
  EXPECT_EQ(page->entries[0].head.body_bytes, 5);
}

TEST_P(BlobStoreTest, RefusesAPageThatNeverWas) {
  EXPECT_EQ(store_->List("f", "no page", 10).status().code(), kInvalid);
}

TEST_P(BlobStoreTest, RefusesNamesThatCouldLeadElsewhere) {
  const std::vector<std::string> names = {"",
                                          "/",
                                          "a/",
                                          "/a",
                                          "a/b/c",
                                          "..",
                                          "../a",
                                          "a/..",
                                          ".",
                                          ".a",
                                          "a/.b",
                                          "a b",
                                          "a\nb",
                                          "a*",
                                          "a@b",
                                          "\xc3\xa4",
                                          "a\\b",
                                          std::string("a\0", 2),
                                          "a//b",
                                          "~",
                                          "f/a?b[c]",
                                          std::string(129, 'a'),
                                          "f/" + std::string(129, 'a')};
  for (const std::string& name : names) {
    EXPECT_EQ(store_->Get(name).status().code(), kInvalid) << name;
    EXPECT_EQ(store_->GetHead(name).status().code(), kInvalid) << name;
    EXPECT_EQ(store_->Put(name, MakeBlob("", ""), {}, Never()).status().code(),
              kInvalid)
        << name;
    EXPECT_EQ(store_->PutHead(name, "", 1, Never()).status().code(), kInvalid)
        << name;
    EXPECT_EQ(store_->Delete(name, std::nullopt).code(), kInvalid) << name;
    EXPECT_EQ(store_->List(name, "", 1).status().code(), kInvalid) << name;
  }
  EXPECT_EQ(store_->List("a/b", "", 1).status().code(), kInvalid);
}

TEST_P(BlobStoreTest, TakesTheLongestNames) {
  const std::string part(128, 'z');
  Put(part + "/" + part, "1", "x");
  EXPECT_THAT(Names(part, 1), ElementsAre(part + "/" + part));
  Put("A-b_c.9", "2", "y");
  EXPECT_EQ(Read("A-b_c.9"), "2+y");
}

TEST_P(BlobStoreTest, LetsOneOfTwoWritersWinEachRound) {
  constexpr int kRounds = 50;
  constexpr int kWriters = 4;
  // As many servers, where there can be more than one.
  std::vector<std::unique_ptr<BlobStore>> others;
  for (int i = 0; i < kWriters && place_->lasts(); ++i) {
    others.push_back(place_->Open(kPlentyOfBytes));
  }
  for (int round = 0; round < kRounds; ++round) {
    const int64_t expected = round == 0 ? kNew : store_->GetHead("a")->version;
    std::atomic<int> won{0};
    std::atomic<int> winner{-1};
    std::vector<std::thread> writers;
    for (int i = 0; i < kWriters; ++i) {
      writers.emplace_back([&, i] {
        BlobStore& store = others.empty() ? *store_ : *others[i];
        const absl::Status status =
            store
                .Put("a", MakeBlob(absl::StrCat(i), absl::StrCat(i)), expected,
                     Never())
                .status();
        if (status.ok()) ++won, winner = i;
        EXPECT_TRUE(status.ok() || status.code() == kAborted) << status;
      });
    }
    for (std::thread& writer : writers) writer.join();
    ASSERT_EQ(won, 1);
    EXPECT_EQ(Read("a"), absl::StrCat(winner.load(), "+", winner.load()));
  }
}

TEST_P(BlobStoreTest, ShowsWholeBlobsWhileTheyAreReplaced) {
  Put("a", "0", std::string(10'000, '0'));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 1; i < 200; ++i) {
      const char digit = static_cast<char>('0' + i % 10);
      Put("a", std::string(1, digit), std::string(10'000 + i, digit));
    }
    done = true;
  });
  while (!done) {
    const std::string blob = Read("a");
    ASSERT_EQ(blob.find_first_not_of(blob[0], 2), std::string::npos) << blob;
  }
  writer.join();
}

TEST_P(BlobStoreTest, LosesNothingToASweepThatRunsMeanwhile) {
  const auto other = place_->lasts() ? place_->Open(kPlentyOfBytes) : nullptr;
  BlobStore& sweeper = other == nullptr ? *store_ : *other;
  std::atomic<bool> done{false};
  std::thread sweeping([&] {
    while (!done) EXPECT_TRUE(sweeper.Sweep().ok());
  });
  for (int i = 0; i < 50; ++i) {
    const std::string body = absl::StrCat(i);
    Put("f/a", "head", body);
    EXPECT_EQ(Read("f/a"), "head+" + body);
  }
  done = true;
  sweeping.join();
}

// Runs `body` in a process of its own, which can be killed.
template <typename Body>
pid_t Fork(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

int ExitStatus(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_P(BlobStoreTest, KeepsWhatItAcknowledgedUntilItIsOpenedAgain) {
  if (!place_->lasts()) return;
  const int64_t version = Put("f/a", "1", "x");
  Put("b", "2", "y");
  store_ = place_->Open(kPlentyOfBytes);
  EXPECT_EQ(Read("f/a"), "1+x");
  EXPECT_EQ(store_->GetHead("f/a")->version, version);
  EXPECT_EQ(Read("b"), "2+y");
}

TEST_P(BlobStoreTest, LeavesWholeBlobsWhenAWriterIsKilled) {
  if (!place_->lasts()) return;
  for (int round = 0; round < 20; ++round) {
    Put("f/a", "0", std::string(1'000'000, '0'));
    const pid_t child = Fork([this] {
      const auto store = place_->Open(kPlentyOfBytes);
      for (int i = 1;; ++i) {
        const char digit = static_cast<char>('0' + i % 10);
        const Blob blob = MakeBlob(std::string(i % 7 + 1, digit),
                                   std::string(1'000'000 + i, digit));
        if (!store->Put("f/a", blob, {}, Never()).ok()) _exit(1);
      }
    });
    // Not before it has written once.
    while (store_->GetHead("f/a")->head == "0") {
      absl::SleepFor(absl::Milliseconds(1));
    }
    absl::SleepFor(absl::Microseconds(300 * round));
    kill(child, SIGKILL);
    ExitStatus(child);
    const absl::StatusOr<BlobStore::Found> found = store_->Get("f/a");
    ASSERT_TRUE(found.ok()) << found.status();
    const std::string& head = found->blob.head;
    const std::string& body = *found->blob.body;
    const auto number = static_cast<int>(body.size()) - 1'000'000;
    const char digit = static_cast<char>('0' + number % 10);
    EXPECT_EQ(head, std::string(number % 7 + 1, digit));
    EXPECT_TRUE(body == std::string(body.size(), digit));
    // And nobody is kept from going on.
    Put("f/a", "again", "x");
    EXPECT_EQ(Read("f/a"), "again+x");
    store_ = place_->Open(kPlentyOfBytes);
    EXPECT_EQ(Read("f/a"), "again+x");
  }
}

TEST_P(BlobStoreTest, CountsEveryChangeOfSeveralProcesses) {
  if (!place_->lasts()) return;
  constexpr int kProcesses = 3;
  constexpr int kChanges = 50;
  Put("count", "0", "x");
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(Fork([this] {
      const auto store = place_->Open(kPlentyOfBytes);
      int changes = 0;
      while (changes < kChanges) {
        const absl::StatusOr<BlobStore::Head> head = store->GetHead("count");
        if (!head.ok()) _exit(1);
        const std::string next = absl::StrCat(std::stoi(head->head) + 1);
        const absl::Status status =
            store->PutHead("count", next, head->version, Never()).status();
        if (status.ok()) ++changes;
        if (!status.ok() && status.code() != kAborted) _exit(2);
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(ExitStatus(child), 0);
  EXPECT_EQ(Read("count"), absl::StrCat(kProcesses * kChanges, "+x"));
}

TEST(OpenBlobStoreTest, RefusesWhatItDoesNotKnow) {
  for (const char* spec :
       {"", "memory:", "dir:", "disk:/tmp", "http://a", "Memory"}) {
    EXPECT_EQ(OpenBlobStore(spec, 1).status().code(), kInvalid) << spec;
  }
}

TEST(MemoryStoreTest, RefusesWhatDoesNotFitAndChangesNothing) {
  auto store = OpenBlobStore("memory", 100).value();
  const int64_t version =
      store->Put("a", MakeBlob("1234", std::string(56, 'a')), {}, Never())
          .value();
  const absl::Status full =
      store->Put("b", MakeBlob("1", std::string(40, 'b')), {}, Never())
          .status();
  EXPECT_EQ(full.code(), kFull);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("60 of at most 100 bytes"));
  EXPECT_EQ(store->Get("b").status().code(), kNotFound);
  EXPECT_EQ(store->Put("a", MakeBlob("1", std::string(100, 'b')), {}, Never())
                .status()
                .code(),
            kFull);
  // A head may be changed all the same: a full store can be used and emptied.
  EXPECT_TRUE(store->PutHead("a", std::string(45, 'h'), version, Never()).ok());
  EXPECT_EQ(store->Get("a")->blob.body->size(), 56);

  EXPECT_TRUE(store->Delete("a", {}).ok());
  EXPECT_TRUE(
      store->Put("b", MakeBlob("", std::string(40, 'b')), {}, Never()).ok());
  EXPECT_TRUE(
      store->Put("c", MakeBlob("", std::string(60, 'c')), {}, Never()).ok());
  EXPECT_TRUE(store->Put("c", MakeBlob("", ""), {}, Past()).ok());
  EXPECT_TRUE(store->Sweep().ok());
  EXPECT_TRUE(
      store->Put("d", MakeBlob("", std::string(60, 'd')), {}, Never()).ok());
}

TEST(MemoryStoreTest, KeepsOneCopyOfABody) {
  auto store = OpenBlobStore("memory", 100).value();
  const Blob blob = MakeBlob("", "body");
  ASSERT_TRUE(store->Put("a", blob, {}, Never()).ok());
  EXPECT_EQ(store->Get("a")->blob.body, blob.body);
}

TEST(MemoryStoreTest, CopiesABodyThatWouldNotBeOverwritten) {
  auto store = OpenBlobStore("memory", 100).value();
  const Blob blob = {"", std::make_shared<const std::string>("body")};
  ASSERT_TRUE(store->Put("a", blob, {}, Never()).ok());
  const auto kept = store->Get("a")->blob.body;
  EXPECT_NE(kept, blob.body);
  EXPECT_EQ(*kept, "body");
}

}  // namespace
}  // namespace flash
