#include "server/sessions/checkpoint_keeper.h"

#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "server/sessions/sha256.h"

namespace flash {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

// A store in memory that can be made to wait, or to fail.
class FakeStore final : public BlobStore {
 public:
  std::string Describe() const override { return "a fake store"; }

  // Until Open() nothing is put or deleted.
  void Shut() {
    MutexLock lock(&mutex_);
    open_ = false;
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // Returns when so many calls wait for Open().
  void WaitForCalls(int count) {
    MutexLock lock(&mutex_);
    while (num_waiting_ < count) changed_.Wait(&mutex_);
  }
  void FailWith(absl::Status status) {
    MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  std::map<std::string, Blob> blobs() {
    MutexLock lock(&mutex_);
    return blobs_;
  }
  void Damage() {
    MutexLock lock(&mutex_);
    for (auto& [name, blob] : blobs_) {
      std::string body = *blob.body;
      body.back() ^= 1;
      blob.body = std::make_shared<const std::string>(std::move(body));
    }
  }
  absl::Time expires() {
    MutexLock lock(&mutex_);
    return expires_;
  }

  absl::StatusOr<Found> Get(std::string_view name) override {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    const auto blob = blobs_.find(std::string(name));
    if (blob == blobs_.end()) return absl::NotFoundError("no blob");
    return Found{blob->second, 1};
  }
  absl::StatusOr<Head> GetHead(std::string_view name) override {
    const auto found = Get(name);
    if (!found.ok()) return found.status();
    return Head{found->blob.head, 1, 0};
  }
  absl::StatusOr<int64_t> Put(std::string_view name, const Blob& blob,
                              std::optional<int64_t> /*expected*/,
                              absl::Time expires) override {
    MutexLock lock(&mutex_);
    WaitUntilOpen();
    if (!status_.ok()) return status_;
    blobs_[std::string(name)] = blob;
    expires_ = expires;
    return 1;
  }
  absl::Status Delete(std::string_view name,
                      std::optional<int64_t> /*expected*/) override {
    MutexLock lock(&mutex_);
    WaitUntilOpen();
    if (!status_.ok()) return status_;
    return blobs_.erase(std::string(name)) == 1 ? absl::OkStatus()
                                                : absl::NotFoundError("");
  }
  absl::StatusOr<int64_t> PutHead(std::string_view, std::string_view, int64_t,
                                  absl::Time) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<Page> List(std::string_view, std::string_view, int) override {
    return absl::UnimplementedError("");
  }
  absl::Status Sweep() override { return absl::OkStatus(); }

 private:
  void WaitUntilOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++num_waiting_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mutex_);
    --num_waiting_;
  }

  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Blob> blobs_ ABSL_GUARDED_BY(mutex_);
  absl::Time expires_ ABSL_GUARDED_BY(mutex_);
};

class CheckpointKeeperTest : public testing::Test {
 protected:
  static Request RequestOf(std::string owner, std::string id) {
    Request request;
    request.owner = std::move(owner);
    request.id = std::move(id);
    return request;
  }
  // The keys of a text's first chunks.
  static std::vector<PrefixKey> Keys(const std::string& text, int count) {
    std::vector<PrefixKey> keys;
    for (int n = 1; n <= count; ++n) {
      keys.push_back(Sha256({text, std::string(n, '.')}));
    }
    return keys;
  }
  static std::string State(const std::string& text, int num_chunks) {
    return text + " after " + std::to_string(num_chunks);
  }

  std::unique_ptr<CheckpointKeeper> Make() {
    return std::make_unique<CheckpointKeeper>(options_, &store_);
  }
  static void Put(CheckpointKeeper& keeper, const Request& request,
                  int num_chunks) {
    keeper.Put(request, Keys("text", num_chunks).back(), 0,
               std::make_shared<const std::string>(State("text", num_chunks)));
  }
  // Returns when it has done what it was given; hangs if it never does.
  static void Finish(const CheckpointKeeper& keeper, int64_t num_done) {
    while (true) {
      const CheckpointKeeper::Stats stats = keeper.stats();
      if (stats.written + stats.deleted + stats.failed >= num_done) return;
      std::this_thread::yield();
    }
  }
  std::vector<std::string> BodiesInStore() {
    std::vector<std::string> bodies;
    for (const auto& [name, blob] : store_.blobs())
      bodies.push_back(*blob.body);
    return bodies;
  }

  FakeStore store_;
  CheckpointKeeper::Options options_;
  const Request request_ = RequestOf("me", "a request");
};

TEST_F(CheckpointKeeperTest, WritesWhatAnotherServerRecalls) {
  const auto keeper = Make();
  Put(*keeper, request_, 3);
  Finish(*keeper, 1);
  const auto another = Make();
  const auto recalled = another->Recall("me", "a request", Keys("text", 5));
  ASSERT_TRUE(recalled.ok()) << recalled.status();
  EXPECT_EQ(recalled->num_chunks, 3);
  EXPECT_EQ(*recalled->state, State("text", 3));
  EXPECT_EQ(another->stats().recalled, 1);
}

TEST_F(CheckpointKeeperTest, KeepsTheLastTwoForClientsThatLagBehind) {
  const auto keeper = Make();
  for (int n = 1; n <= 5; ++n) {
    Put(*keeper, request_, n);
    Finish(*keeper, n);
  }
  EXPECT_THAT(store_.blobs(), SizeIs(2));
  EXPECT_EQ(keeper->Recall("me", "a request", Keys("text", 9))->num_chunks, 5);
  EXPECT_EQ(keeper->Recall("me", "a request", Keys("text", 4))->num_chunks, 4);
  EXPECT_TRUE(absl::IsNotFound(
      keeper->Recall("me", "a request", Keys("text", 3)).status()));
}

TEST_F(CheckpointKeeperTest, RecallsNothingOfAnotherTextRequestOrOwner) {
  const auto keeper = Make();
  Put(*keeper, request_, 1);
  Finish(*keeper, 1);
  for (const auto& recalled :
       {keeper->Recall("me", "a request", Keys("another text", 3)),
        keeper->Recall("me", "a request", {}),
        keeper->Recall("me", "another request", Keys("text", 3)),
        keeper->Recall("you", "a request", Keys("text", 3))}) {
    EXPECT_TRUE(absl::IsNotFound(recalled.status())) << recalled.status();
  }
  EXPECT_EQ(keeper->stats().recall_misses, 4);
}

TEST_F(CheckpointKeeperTest, NamesTellNeitherOwnerNorRequest) {
  const auto keeper = Make();
  Put(*keeper, request_, 1);
  Finish(*keeper, 1);
  EXPECT_THAT(store_.blobs().begin()->first,
              MatchesRegex("checkpoints-[0-9a-f]{32}/[0-9a-f]{32}-0"));
}

TEST_F(CheckpointKeeperTest, SaysThatADamagedOneIsDamaged) {
  const auto keeper = Make();
  Put(*keeper, request_, 1);
  Finish(*keeper, 1);
  store_.Damage();
  const auto recalled = keeper->Recall("me", "a request", Keys("text", 1));
  EXPECT_TRUE(absl::IsDataLoss(recalled.status())) << recalled.status();
  EXPECT_THAT(recalled.status().message(), HasSubstr("a fake store"));
  EXPECT_EQ(keeper->stats().recall_failures, 1);
}

TEST_F(CheckpointKeeperTest, DeletesWhatARequestLeftThatIsOver) {
  const auto keeper = Make();
  Put(*keeper, request_, 1);
  Finish(*keeper, 1);
  Put(*keeper, request_, 2);
  Finish(*keeper, 2);
  Put(*keeper, RequestOf("me", "another"), 1);
  Finish(*keeper, 3);
  keeper->Drop(request_);
  Finish(*keeper, 4);
  EXPECT_THAT(BodiesInStore(), ElementsAre(State("text", 1)));
  EXPECT_EQ(keeper->stats().deleted, 1);
}

TEST_F(CheckpointKeeperTest, DeletesWhatAnotherServerLeftOfTheRequest) {
  Put(*Make(), request_, 1);
  EXPECT_THAT(store_.blobs(), SizeIs(1));
  Make()->Drop(request_);
  EXPECT_THAT(store_.blobs(), IsEmpty());
}

TEST_F(CheckpointKeeperTest, ThoseThatNobodyDropsExpire) {
  options_.time_to_live = absl::Minutes(5);
  options_.now = [] { return absl::FromUnixSeconds(1000); };
  Put(*Make(), request_, 1);
  EXPECT_THAT(store_.blobs(), SizeIs(1));
  EXPECT_EQ(store_.expires(), absl::FromUnixSeconds(1300));
}

TEST_F(CheckpointKeeperTest, ASlowStoreGetsOnlyTheNewestOfEachRequest) {
  const auto keeper = Make();
  store_.Shut();
  Put(*keeper, request_, 1);
  store_.WaitForCalls(1);
  for (int n = 2; n <= 5; ++n) Put(*keeper, request_, n);
  EXPECT_EQ(keeper->stats().waiting, 1);
  EXPECT_EQ(keeper->stats().waiting_bytes,
            State("text", 1).size() + State("text", 5).size());
  store_.Open();
  Finish(*keeper, 2);
  EXPECT_THAT(BodiesInStore(), ElementsAre(State("text", 1), State("text", 5)));
  EXPECT_EQ(keeper->stats().replaced, 3);
  EXPECT_EQ(keeper->stats().waiting_bytes, 0);
}

TEST_F(CheckpointKeeperTest, ARequestThatIsOverIsNotWrittenAnyMore) {
  const auto keeper = Make();
  store_.Shut();
  Put(*keeper, request_, 1);
  store_.WaitForCalls(1);
  Put(*keeper, request_, 2);
  keeper->Drop(request_);
  store_.Open();
  Finish(*keeper, 2);
  EXPECT_THAT(store_.blobs(), IsEmpty());
  EXPECT_EQ(keeper->stats().written, 1);
}

TEST_F(CheckpointKeeperTest, DropsWhatThereIsNoRoomFor) {
  options_.max_waiting_bytes = 3 * State("text", 1).size();
  const auto keeper = Make();
  store_.Shut();
  Put(*keeper, RequestOf("me", "being written"), 1);
  store_.WaitForCalls(1);
  for (int i = 0; i < 5; ++i)
    Put(*keeper, RequestOf("me", std::to_string(i)), 1);
  EXPECT_EQ(keeper->stats().waiting, 2);
  EXPECT_EQ(keeper->stats().dropped, 3);
  store_.Open();
  Finish(*keeper, 3);
  Put(*keeper, RequestOf("me", "later"), 1);
  Finish(*keeper, 4);
  EXPECT_THAT(store_.blobs(), SizeIs(4));
}

TEST_F(CheckpointKeeperTest, TellsOnceThatTheStoreIsDownAndGoesOn) {
  std::vector<absl::Status> told;
  options_.on_failure = [&told](const absl::Status& status) {
    told.push_back(status);
  };
  auto keeper = Make();
  store_.FailWith(absl::UnavailableError("down"));
  Put(*keeper, request_, 1);
  Finish(*keeper, 1);
  Put(*keeper, request_, 2);
  Finish(*keeper, 2);
  EXPECT_EQ(keeper->stats().failed, 2);
  EXPECT_TRUE(absl::IsUnavailable(
      keeper->Recall("me", "a request", Keys("text", 1)).status()));
  store_.FailWith(absl::OkStatus());
  Put(*keeper, request_, 3);
  Finish(*keeper, 3);
  EXPECT_THAT(BodiesInStore(), ElementsAre(State("text", 3)));
  keeper.reset();
  EXPECT_THAT(told, ElementsAre(absl::UnavailableError("down")));
}

TEST_F(CheckpointKeeperTest, WritesWhatWaitsBeforeItEnds) {
  options_.last_writes = std::chrono::hours(1);
  auto keeper = Make();
  for (int i = 0; i < 5; ++i)
    Put(*keeper, RequestOf("me", std::to_string(i)), 1);
  keeper.reset();
  EXPECT_THAT(store_.blobs(), SizeIs(5));
}

TEST_F(CheckpointKeeperTest, DoesNotWaitForEverForTheLastWrites) {
  options_.last_writes = std::chrono::milliseconds(0);
  auto keeper = Make();
  store_.Shut();
  Put(*keeper, request_, 1);
  store_.WaitForCalls(1);
  for (int i = 0; i < 5; ++i)
    Put(*keeper, RequestOf("me", std::to_string(i)), 1);
  std::thread ender([&keeper] { keeper.reset(); });
  store_.Open();
  ender.join();
  // It may have begun another one before it was told to end.
  EXPECT_GE(store_.blobs().size(), 1);
}

}  // namespace
}  // namespace flash
