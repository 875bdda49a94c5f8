// What "auto" becomes, from copies of the system's files.

#include "server/machine.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace flash {
namespace {

class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    std::string name = testing::TempDir() + "/machine.XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, UsesWhatItsAffinityAllowsWhereThereIsNoQuota) {
  EXPECT_EQ(UsableProcessorsBelow(root_, 6), 6);
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableProcessorsBelow(root_, 6), 6);
}

TEST_F(MachineTest, UsesTheQuotaRoundedUp) {
  Write("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(UsableProcessorsBelow(root_, 6), 3);
  EXPECT_EQ(UsableProcessorsBelow(root_, 2), 2);
  Write("/sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(UsableProcessorsBelow(root_, 6), 1);
}

TEST_F(MachineTest, ReadsTheOlderCgroups) {
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableProcessorsBelow(root_, 6), 6);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(UsableProcessorsBelow(root_, 6), 4);
  Write("/proc/meminfo", "MemAvailable:   1000 kB\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(UsableMemoryBytesBelow(root_), 400000);
}

TEST_F(MachineTest, TakesTheSmallerOfMachineAndLimit) {
  Write("/proc/meminfo",
        "MemTotal:      9999 kB\nMemFree: 5 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(UsableMemoryBytesBelow(root_), 1000 * 1024);
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(UsableMemoryBytesBelow(root_), 1000 * 1024);
  Write("/sys/fs/cgroup/memory.max", "900000\n");
  Write("/sys/fs/cgroup/memory.current", "500000\n");
  Write("/sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 200000\n");
  EXPECT_EQ(UsableMemoryBytesBelow(root_), 600000);
}

TEST_F(MachineTest, KnowsThisMachine) {
  EXPECT_GE(UsableProcessors(), 1);
  EXPECT_GT(UsableMemoryBytes(), 0);
  EXPECT_FALSE(ProcessorName().empty());
}

}  // namespace
}  // namespace flash
