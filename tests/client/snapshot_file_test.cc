#include "client/snapshot_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

using testing::HasSubstr;

class SnapshotFileTest : public testing::Test {
 protected:
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  size_t NumFiles() const {
    const std::filesystem::directory_iterator files(directory_.path());
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/talk.session";
};

TEST_F(SnapshotFileTest, IsThereOnceItIsWhole) {
  directory_.Write("talk.session", "older");
  SnapshotFile file(path_);
  ASSERT_TRUE(file.Open().ok());
  ASSERT_TRUE(file.Write(std::string("new\0er", 6)).ok());
  EXPECT_EQ(Content(), "older");
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Content(), std::string("new\0er", 6));
  EXPECT_EQ(NumFiles(), 1u);
}

TEST_F(SnapshotFileTest, LeavesNothingBehindIfItIsNotWhole) {
  {
    SnapshotFile file(path_);
    ASSERT_TRUE(file.Open().ok());
    ASSERT_TRUE(file.Write("half").ok());
    EXPECT_EQ(NumFiles(), 1u);
  }
  EXPECT_EQ(NumFiles(), 0u);
}

TEST_F(SnapshotFileTest, SaysWhatCannotBeWritten) {
  SnapshotFile file(directory_.path() + "/none/talk.session");
  const absl::Status status = file.Open();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be written"));
}

TEST_F(SnapshotFileTest, IsReadPieceByPiece) {
  directory_.Write("talk.session", "12345");
  SnapshotSource source(path_);
  ASSERT_TRUE(source.Open().ok());
  EXPECT_EQ(source.Next(3), "123");
  EXPECT_EQ(source.Next(3), "45");
  EXPECT_EQ(source.Next(3), "");
  EXPECT_TRUE(source.status().ok());
}

TEST_F(SnapshotFileTest, SaysWhatCannotBeRead) {
  SnapshotSource none(path_);
  EXPECT_TRUE(absl::IsFailedPrecondition(none.Open()));
  SnapshotSource folder(directory_.path());
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.Next(3), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(folder.status()));
}

}  // namespace
}  // namespace flash
