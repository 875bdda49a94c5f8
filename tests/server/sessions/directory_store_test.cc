// What only a store in a directory can get wrong: its files.

#include "server/sessions/directory_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/sessions/body.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kFull = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

absl::Time Never() { return absl::InfiniteFuture(); }

Blob MakeBlob(std::string head, std::string body) {
  return {std::move(head), MakeBody(std::move(body))};
}

class DirectoryStoreTest : public testing::Test {
 protected:
  DirectoryStoreTest() : path_(directory_.path() + "/store") { Open(); }

  void Open(int64_t max_bytes = int64_t{1} << 30) {
    store_.reset();
    auto store = DirectoryStore::Open(path_, max_bytes);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  absl::Status Put(const std::string& name, const std::string& head,
                   const std::string& body) {
    return store_->Put(name, MakeBlob(head, body), {}, Never()).status();
  }

  absl::StatusCode CodeOfGet(const std::string& name) {
    return store_->Get(name).status().code();
  }

  // The files in `folder` that end so.
  std::vector<std::string> Files(const std::string& folder,
                                 const std::string& end = "") {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_ + "/" + folder)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(end)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // The body's file of the only blob of folder f.
  std::string BodyFile() {
    for (const std::string& name : Files("f")) {
      if (!name.ends_with("@head")) return "f/" + name;
    }
    return "";
  }

  std::string ReadFile(const std::string& name) {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteFile(const std::string& name, const std::string& bytes) {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

  TemporaryDirectory directory_;
  const std::string path_;
  std::unique_ptr<DirectoryStore> store_;
};

TEST_F(DirectoryStoreTest, NoticesADamagedHead) {
  ASSERT_TRUE(Put("f/a", "some head", "body").ok());
  const std::string whole = ReadFile("f/a@head");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 0x10;
    WriteFile("f/a@head", damaged);
    EXPECT_EQ(CodeOfGet("f/a"), kDataLoss) << i;
    EXPECT_EQ(store_->GetHead("f/a").status().code(), kDataLoss) << i;
    WriteFile("f/a@head", whole.substr(0, i));
    EXPECT_EQ(CodeOfGet("f/a"), kDataLoss) << i;
  }
  WriteFile("f/a@head", whole + "x");
  EXPECT_EQ(CodeOfGet("f/a"), kDataLoss);
  WriteFile("f/a@head", whole);
  EXPECT_EQ(CodeOfGet("f/a"), absl::StatusCode::kOk);
}

TEST_F(DirectoryStoreTest, NoticesADamagedBody) {
  ASSERT_TRUE(Put("f/a", "head", "some body").ok());
  const std::string file = BodyFile();
  for (const char* body : {"some bodY", "some bod", "some body!", ""}) {
    WriteFile(file, body);
    const absl::Status status = store_->Get("f/a").status();
    EXPECT_EQ(status.code(), kDataLoss) << body;
    EXPECT_THAT(std::string(status.message()), HasSubstr("f/a"));
  }
  fs::remove(path_ + "/" + file);
  EXPECT_EQ(CodeOfGet("f/a"), kDataLoss);
  // The head is whole, and says what is lost.
  EXPECT_EQ(store_->GetHead("f/a")->head, "head");
}

TEST_F(DirectoryStoreTest, LetsADamagedBlobBeReplacedAndDeletedOnlyOnPurpose) {
  for (const char* name : {"f/a", "f/b"}) {
    ASSERT_TRUE(Put(name, "head", "body").ok());
    WriteFile(absl::StrCat(name, "@head"), "damaged");
  }
  EXPECT_EQ(store_->Put("f/a", MakeBlob("", ""), 0, Never()).status().code(),
            kDataLoss);
  EXPECT_EQ(store_->PutHead("f/a", "", 1, Never()).status().code(), kDataLoss);
  EXPECT_EQ(store_->Delete("f/a", 1).code(), kDataLoss);
  EXPECT_THAT(store_->List("f", "", 10)->entries, IsEmpty());
  Open();
  EXPECT_EQ(Files("f").size(), 4);  // the bodies may still be of use

  EXPECT_TRUE(Put("f/a", "new", "body").ok());
  EXPECT_EQ(store_->Get("f/a")->blob.head, "new");
  EXPECT_TRUE(store_->Delete("f/b", std::nullopt).ok());
  EXPECT_EQ(CodeOfGet("f/b"), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->Sweep().ok());
  EXPECT_EQ(Files("f").size(), 2);
}

TEST_F(DirectoryStoreTest, IsOpenedWhateverIsDamagedInItAndSaysSoOnce) {
  for (const char* name : {"f/a", "f/b", "f/c"}) {
    ASSERT_TRUE(Put(name, "head", "body").ok());
  }
  WriteFile("f/a@head", "damaged");
  // As on a disk that has gone bad: it can neither be read nor deleted.
  fs::remove(path_ + "/f/b@head");
  fs::create_directory(path_ + "/f/b@head");
  std::vector<std::string> told;
  store_ = DirectoryStore::Open(path_, 1 << 20, [&](const std::string& what) {
             told.push_back(what);
           }).value();
  EXPECT_TRUE(store_->Sweep().ok());
  EXPECT_THAT(told, ElementsAre(HasSubstr("2 blobs of dir:" + path_)));
  EXPECT_EQ(store_->num_damaged(), 2);
  EXPECT_EQ(Files("f").size(), 6);  // the bodies may still be of use
  EXPECT_EQ(store_->List("f", "", 10)->entries.size(), 1);
  EXPECT_EQ(*store_->Get("f/c")->blob.body, "body");
  EXPECT_EQ(CodeOfGet("f/b"), kUnavailable);
  fs::remove(path_ + "/f/b@head");
  EXPECT_TRUE(store_->Sweep().ok());
  EXPECT_EQ(store_->num_damaged(), 1);
}

TEST_F(DirectoryStoreTest, SweepsDamagedHeadsOfLongAgoAndNothingThatIsWell) {
  Open(10'000);
  for (const char* name : {"f/a", "f/b", "f/c"}) {
    ASSERT_TRUE(Put(name, "head", std::string(2'000, 'x')).ok());
  }
  WriteFile("f/a@head", "damaged");
  WriteFile("f/b@head", "damaged");
  for (const char* name : {"f/a@head", "f/c@head"}) {
    fs::last_write_time(path_ + "/" + name, fs::file_time_type::clock::now() -
                                                std::chrono::hours(24 * 32));
  }
  ASSERT_TRUE(store_->Sweep().ok());
  EXPECT_THAT(Files("f", "@head"), ElementsAre("b@head", "c@head"));
  EXPECT_EQ(Files("f").size(), 4);
  EXPECT_EQ(store_->num_damaged(), 1);
  EXPECT_EQ(CodeOfGet("f/c"), absl::StatusCode::kOk);
  // What it took is free again.
  EXPECT_TRUE(Put("f/a", "new", std::string(5'000, 'x')).ok());
}

TEST_F(DirectoryStoreTest, LeavesNoFileOfWhatIsReplacedOrDeleted) {
  ASSERT_TRUE(Put("f/a", "1", "x").ok());
  ASSERT_TRUE(Put("f/a", "2", "y").ok());
  EXPECT_EQ(Files("f").size(), 2);
  ASSERT_TRUE(store_->Delete("f/a", {}).ok());
  EXPECT_THAT(Files("f"), IsEmpty());
  ASSERT_TRUE(store_->Put("f/a", MakeBlob("", ""), {}, absl::Now()).ok());
  ASSERT_TRUE(store_->Sweep().ok());
  EXPECT_THAT(Files("f"), IsEmpty());
}

TEST_F(DirectoryStoreTest, SweepsWhatDeadWritersLeft) {
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  const std::vector<std::string> files = Files("f");
  WriteFile("f/@new-0123456789abcdef", "half a bo");
  WriteFile("@new-0123456789abcdef", "half a bo");
  WriteFile("f/a@0123456789abcdef", "a body without a head");
  WriteFile("f/b@0123456789abcdef", "a body without a head");
  // Nothing of ours.
  WriteFile("f/@other", "");
  WriteFile("f/b@0123456789ABCDEF", "");
  WriteFile("f/b", "");
  Open();
  EXPECT_THAT(Files(""), ElementsAre("@lock", "f"));
  EXPECT_THAT(Files("f"), ElementsAre("@other", files[0], files[1], "b",
                                      "b@0123456789ABCDEF"));
  EXPECT_EQ(*store_->Get("f/a")->blob.body, "body");
}

TEST_F(DirectoryStoreTest, LeavesAloneWhatIsBeingWritten) {
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  const std::string name = "f/@new-0123456789abcdef";
  WriteFile(name, "half a bo");
  const int file = open((path_ + "/" + name).c_str(), O_RDONLY);
  ASSERT_EQ(flock(file, LOCK_EX), 0);
  EXPECT_TRUE(store_->Sweep().ok());
  EXPECT_EQ(ReadFile(name), "half a bo");
  close(file);
  EXPECT_TRUE(store_->Sweep().ok());
  EXPECT_FALSE(fs::exists(path_ + "/" + name));
}

TEST_F(DirectoryStoreTest, RefusesWhatDoesNotFitAndChangesNothing) {
  Open(10'000);
  ASSERT_TRUE(Put("f/a", "head", std::string(6'000, 'a')).ok());
  const absl::Status full = Put("f/b", "head", std::string(6'000, 'b'));
  EXPECT_EQ(full.code(), kFull);
  EXPECT_THAT(std::string(full.message()), HasSubstr("of at most 10000 bytes"));
  EXPECT_EQ(CodeOfGet("f/b"), absl::StatusCode::kNotFound);
  EXPECT_EQ(Files("f").size(), 2);
  EXPECT_EQ(Put("f/a", "head", std::string(10'000, 'a')).code(), kFull);
  EXPECT_EQ(store_->Get("f/a")->blob.body->size(), 6'000);

  // In the place of an old one, a new one fits; so does a head.
  EXPECT_TRUE(Put("f/a", "head", std::string(9'000, 'a')).ok());
  EXPECT_TRUE(store_
                  ->PutHead("f/a", std::string(2'000, 'h'),
                            store_->GetHead("f/a")->version, Never())
                  .ok());
  EXPECT_TRUE(store_->Delete("f/a", {}).ok());
  EXPECT_TRUE(Put("f/b", "head", std::string(9'000, 'b')).ok());
}

TEST_F(DirectoryStoreTest, SharesItsLimitWithOtherServers) {
  Open(10'000);
  auto other = DirectoryStore::Open(path_, 10'000).value();
  ASSERT_TRUE(Put("f/a", "head", std::string(6'000, 'a')).ok());
  const Blob blob = MakeBlob("head", std::string(6'000, 'b'));
  EXPECT_EQ(other->Put("f/b", blob, {}, Never()).status().code(), kFull);
  EXPECT_TRUE(store_->Delete("f/a", {}).ok());
  EXPECT_TRUE(other->Put("f/b", blob, {}, Never()).ok());
  EXPECT_EQ(Put("f/a", "head", std::string(6'000, 'a')).code(), kFull);
}

TEST_F(DirectoryStoreTest, CountsItsBytesAgainWhenItIsOpened) {
  ASSERT_TRUE(Put("f/a", "head", std::string(6'000, 'a')).ok());
  WriteFile("@lock", "");  // as if the count had never been written
  Open(10'000);
  EXPECT_EQ(Put("f/b", "head", std::string(6'000, 'b')).code(), kFull);
  // What is left of a dead writer does not count.
  WriteFile("f/b@0123456789abcdef", std::string(6'000, 'x'));
  Open(10'000);
  EXPECT_TRUE(Put("f/b", "head", std::string(3'000, 'b')).ok());
}

TEST_F(DirectoryStoreTest, LetsNobodyElseReadItsFiles) {
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  for (const std::string name : {"", "f"}) {
    EXPECT_EQ(fs::status(path_ + "/" + name).permissions(),
              fs::perms::owner_all);
  }
  for (const std::string& name : Files("f")) {
    EXPECT_EQ(fs::status(path_ + "/f/" + name).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(DirectoryStoreTest, FollowsNoLinkOutOfItsDirectory) {
  fs::create_directory(directory_.path() + "/elsewhere");
  fs::create_directory_symlink(directory_.path() + "/elsewhere", path_ + "/f");
  EXPECT_FALSE(Put("f/a", "head", "body").ok());
  EXPECT_TRUE(fs::is_empty(directory_.path() + "/elsewhere"));
}

TEST_F(DirectoryStoreTest, IsUnavailableOnceItsDirectoryIsGone) {
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  fs::remove_all(path_);
  const absl::Status gone = store_->Get("f/a").status();
  EXPECT_EQ(gone.code(), kUnavailable);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("dir:" + path_));
  EXPECT_EQ(CodeOfGet("a"), kUnavailable);
  EXPECT_EQ(Put("f/a", "", "").code(), kUnavailable);
  EXPECT_EQ(Put("a", "", "").code(), kUnavailable);
  EXPECT_EQ(store_->Delete("f/a", {}).code(), kUnavailable);
  EXPECT_EQ(store_->List("f", "", 1).status().code(), kUnavailable);
  EXPECT_EQ(store_->Sweep().code(), kUnavailable);
}

TEST_F(DirectoryStoreTest, CannotBeOpenedWhereItCannotWrite) {
  directory_.Write("file", "");
  for (const std::string& path :
       {directory_.path() + "/file", directory_.path() + "/no/where",
        std::string("/proc/flash")}) {
    const absl::Status status = OpenBlobStore("dir:" + path, 1 << 20).status();
    EXPECT_EQ(status.code(), kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("dir:" + path));
  }
}

TEST_F(DirectoryStoreTest, DoesNotWaitForEverForAProcessThatHasStopped) {
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  const int lock = open((path_ + "/@lock").c_str(), O_RDONLY);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const absl::Status status = Put("f/a", "new", "body");
  EXPECT_EQ(status.code(), kUnavailable) << status;
  EXPECT_EQ(store_->Get("f/a")->blob.head, "head");
  close(lock);
  EXPECT_TRUE(Put("f/a", "new", "body").ok());
}

// A limit on the size of files stands in for a disk that is full.
TEST_F(DirectoryStoreTest, KeepsTheOldBlobWhenTheDiskIsFull) {
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 5'000, .rlim_max = 5'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool refused =
        Put("f/a", "", std::string(6'000, 'x')).code() == kFull;
    const bool kept = *store_->Get("f/a")->blob.body == "body";
    const bool written = Put("f/b", "", std::string(4'000, 'x')).ok();
    _exit(refused && kept && written ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Files("f").size(), 4);
}

TEST_F(DirectoryStoreTest, HoldsThousandsOfBlobsInOneFolder) {
  constexpr int kBlobs = 2'000;
  ASSERT_TRUE(Put("f/a", "head", "body").ok());
  const std::string body = BodyFile();
  const std::string id = body.substr(body.find('@'));
  for (int i = 1; i < kBlobs; ++i) {  // Put() would wait for the disk
    const std::string copy = absl::StrCat(path_, "/f/", i);
    fs::copy_file(path_ + "/f/a@head", copy + "@head");
    fs::copy_file(path_ + "/" + body, copy + id);
  }
  Open();
  EXPECT_EQ(store_->List("f", "", kBlobs)->entries.size(), kBlobs);
  EXPECT_EQ(*store_->Get("f/1999")->blob.body, "body");
}

}  // namespace
}  // namespace flash
