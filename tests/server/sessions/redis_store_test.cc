// What only a store in Redis can get wrong: a server that is full, slow, down,
// or wants a password.

#include "server/sessions/redis_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/sessions/body.h"
#include "tests/server/sessions/redis_process.h"

namespace flash {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::StatusCode kFull = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

absl::Time Never() { return absl::InfiniteFuture(); }

Blob MakeBlob(std::string head, std::string body) {
  return {std::move(head), MakeBody(std::move(body))};
}

class RedisStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!RedisProcess::IsInstalled()) {
      GTEST_SKIP() << "redis-server is not installed";
    }
  }

  void Start(std::vector<std::string> options = {}) {
    redis_.emplace(std::move(options));
    auto store = OpenBlobStore(redis_->url(), 0);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  absl::Status Put(const std::string& name, const std::string& head,
                   const std::string& body) {
    return store_->Put(name, MakeBlob(head, body), {}, Never()).status();
  }

  // Runs a command of ours, past the store.
  void Run(std::vector<std::string_view> command) {
    const auto address = ParseRedisUrl(redis_->url());
    const auto reply = RedisConnection::Connect(*address).value()->Run(command);
    ASSERT_TRUE(reply.ok()) << reply.status();
  }

  std::optional<RedisProcess> redis_;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(RedisStoreTest, IsUnavailableWhileItIsDownAndWorksAgainAfterwards) {
  Start();
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  redis_->Kill();
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = store_->Get("f/a").status();
    EXPECT_EQ(status.code(), kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr(redis_->url()));
    EXPECT_EQ(Put("f/a", "new", "body").code(), kUnavailable);
    EXPECT_EQ(store_->Delete("f/a", {}).code(), kUnavailable);
    EXPECT_EQ(store_->List("f", "", 1).status().code(), kUnavailable);
  }
  EXPECT_EQ(OpenBlobStore(redis_->url(), 0).status().code(), kUnavailable);
  redis_->Start();
  EXPECT_EQ(store_->Get("f/a")->blob.head, "head");
  EXPECT_TRUE(Put("f/a", "new", "body").ok());
}

TEST_F(RedisStoreTest, FailsNoCallBecauseOfAnOutageThatIsOver) {
  Start();
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  redis_->Kill();
  redis_->Start();
  EXPECT_TRUE(Put("f/a", "new", "body").ok());
}

TEST_F(RedisStoreTest, IsUnavailableWhileItIsTooSlow) {
  Start();
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  redis_->Signal(SIGSTOP);
  const absl::Status slow = store_->GetHead("f/a").status();
  EXPECT_EQ(slow.code(), kUnavailable);
  EXPECT_THAT(std::string(slow.message()), HasSubstr("takes too long"));
  EXPECT_EQ(Put("f/a", "", std::string(30'000'000, 'x')).code(), kUnavailable);
  redis_->Signal(SIGCONT);
  EXPECT_EQ(store_->GetHead("f/a")->head, "head");
}

TEST_F(RedisStoreTest, SurvivesAnEndInTheMiddleOfABody) {
  Start();
  const Blob blob = MakeBlob("head", std::string(20'000'000, 'x'));
  for (int round = 0; round < 4; ++round) {
    std::atomic<bool> started{false};
    std::thread writer([&] {
      absl::Status status;
      while (status.ok()) {
        status = store_->Put("a", blob, {}, Never()).status();
        started = true;
      }
      EXPECT_EQ(status.code(), kUnavailable) << status;
    });
    while (!started) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(7 * round));
    redis_->Kill();
    writer.join();
    redis_->Start();
  }
}

TEST_F(RedisStoreTest, SaysThatItIsFullAndLosesNothing) {
  Start({"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"});
  absl::Status status;
  int written = 0;
  while (status.ok()) {
    status =
        Put(absl::StrCat("f/", written), "head", std::string(500'000, 'x'));
    written += status.ok();
  }
  EXPECT_EQ(status.code(), kFull) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("maxmemory"));
  EXPECT_GT(written, 0);
  EXPECT_EQ(Put("f/0", "new", std::string(500'000, 'y')).code(), kFull);
  for (int i = 0; i < written; ++i) {
    EXPECT_EQ(store_->Get(absl::StrCat("f/", i))->blob.body->size(), 500'000);
  }
  for (int i = 0; i < written; ++i) {
    EXPECT_TRUE(store_->Delete(absl::StrCat("f/", i), {}).ok());
  }
  EXPECT_TRUE(Put("f/0", "new", "body").ok());
}

TEST_F(RedisStoreTest, RefusesABodyThatRedisCannotTake) {
  Start();
  const absl::Status status =
      Put("f/a", "head", std::string((size_t{512} << 20) + 1, 'x'));
  EXPECT_EQ(status.code(), kFull);
  EXPECT_THAT(std::string(status.message()), HasSubstr("536870912"));
}

TEST_F(RedisStoreTest, NoticesWhatIsNotABlob) {
  Start();
  Run({"SET", "flash:f/string", "x"});
  for (const char* field : {"v", "h", "n", "b"}) {
    const std::string name = absl::StrCat("f/", field);
    ASSERT_TRUE(Put(name, "head", "body").ok());
    Run({"HDEL", absl::StrCat("flash:", name), field});
  }
  ASSERT_TRUE(Put("f/short", "head", "body").ok());
  Run({"HSET", "flash:f/short", "b", "bod"});
  ASSERT_TRUE(Put("f/version", "head", "body").ok());
  Run({"HSET", "flash:f/version", "v", "one"});
  for (const char* name :
       {"f/string", "f/v", "f/h", "f/n", "f/b", "f/short", "f/version"}) {
    EXPECT_EQ(store_->Get(name).status().code(), kDataLoss) << name;
  }
  for (const char* name : {"f/string", "f/v", "f/version"}) {
    EXPECT_EQ(store_->PutHead(name, "", 1, Never()).status().code(), kDataLoss);
    EXPECT_EQ(store_->Delete(name, 1).code(), kDataLoss);
    EXPECT_EQ(store_->Put(name, MakeBlob("", ""), 0, Never()).status().code(),
              kDataLoss);
    EXPECT_TRUE(Put(name, "new", "body").ok()) << name;
    EXPECT_EQ(*store_->Get(name)->blob.body, "body");
  }
  Run({"SET", "flash:f/string", "x"});
  EXPECT_EQ(store_->List("f", "", 100)->entries.size(), 4);
  EXPECT_TRUE(store_->Delete("f/string", {}).ok());
}

TEST_F(RedisStoreTest, SaysItsPasswordAndNeverTellsIt) {
  redis_.emplace(std::vector<std::string>{"--requirepass", "s3cret@/:"});
  const std::string at = "@127.0.0.1:" + std::to_string(redis_->port());
  const auto store = OpenBlobStore("redis://:s3cret@/:" + at, 0);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Describe(), redis_->url() + "/0");
  EXPECT_TRUE((*store)->Put("a", MakeBlob("", ""), {}, Never()).ok());

  for (const std::string& url :
       {"redis://:wr0ng" + at, redis_->url(), "redis://:wr0ng" + at + "/x",
        "redis://wr0ng" + at}) {
    const absl::Status status = OpenBlobStore(url, 0).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("wr0ng")));
  }
  EXPECT_EQ(OpenBlobStore("redis://:wr0ng" + at, 0).status().code(),
            kUnavailable);
}

TEST_F(RedisStoreTest, KeepsToItsDatabase) {
  Start();
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  const auto other = OpenBlobStore(redis_->url() + "/3", 0).value();
  EXPECT_EQ(other->Get("f/a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(other->List("f", "", 10)->entries, IsEmpty());
  EXPECT_EQ(OpenBlobStore(redis_->url() + "/999", 0).status().code(),
            kUnavailable);
}

TEST_F(RedisStoreTest, FindsItsBlobsAmongManyOthers) {
  Start();
  std::vector<std::string> others = {"MSET"};
  for (int i = 0; i < 20'000; ++i) {
    others.push_back(absl::StrCat("other:", i));
    others.push_back("x");
  }
  Run({others.begin(), others.end()});
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(Put(absl::StrCat("f/", i), "head", "body").ok());
  }
  size_t found = 0;
  std::string from;
  do {
    const BlobStore::Page page = store_->List("f", from, 10).value();
    found += page.entries.size();
    from = page.next;
  } while (!from.empty());
  EXPECT_EQ(found, 30);
}

TEST(RedisAddressTest, ReadsAUrl) {
  EXPECT_EQ(ParseRedisUrl("redis://host")->Describe(), "redis://host:6379/0");
  EXPECT_EQ(ParseRedisUrl("redis://10.0.0.1:1234/5")->Describe(),
            "redis://10.0.0.1:1234/5");
  EXPECT_EQ(ParseRedisUrl("redis://[::1]:12")->host, "::1");
  EXPECT_EQ(ParseRedisUrl("redis://[::1]:12")->Describe(),
            "redis://[::1]:12/0");
  EXPECT_EQ(ParseRedisUrl("redis://:a@b:c@host/1")->password, "a@b:c");
}

TEST(RedisAddressTest, RefusesWhatIsNone) {
  for (const char* url :
       {"redis:", "redis://", "redis:///1", "redis://h:", "redis://h:0",
        "redis://h:65536", "redis://h:-1", "redis://h:x", "redis://h/",
        "redis://h/-1", "redis://h/a", "redis://user:p@h", "redis://:@h",
        "redis://@h", "redis://[::1", "redis://[::1]x", "redis://[]",
        "rediss://h"}) {
    EXPECT_EQ(OpenBlobStore(url, 0).status().code(), kInvalid) << url;
  }
}

}  // namespace
}  // namespace flash
