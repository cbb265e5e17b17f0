#include "common/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace ballast {
namespace {

TEST(CoresTest, AMachineHasAtLeastOne) { EXPECT_GE(Cores(), 1u); }

TEST(CoresTest, ASettingOfZeroIsOnePerCore) {
  EXPECT_EQ(ThreadsOrCores(0), Cores());
  EXPECT_EQ(ThreadsOrCores(1), 1u);
  EXPECT_EQ(ThreadsOrCores(300), 300u);
}

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() : root_(::testing::TempDir() + "machine_memory_XXXXXX") {
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    Write("/proc/meminfo", "MemTotal:        1048576 kB\nMemFree: 5 kB\n");
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(MachineMemoryTest, IsTheMachinesWithoutALimit) {
  EXPECT_EQ(MachineMemory(root_), uint64_t{1} << 30);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(MachineMemory(root_), uint64_t{1} << 30);
}

TEST_F(MachineMemoryTest, IsTheLeastLimitOfItsGroups) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "400000\n");
  EXPECT_EQ(MachineMemory(root_), 400000u);
  Write("/sys/fs/cgroup/a/memory.max", "300000\n");
  EXPECT_EQ(MachineMemory(root_), 300000u);
}

TEST_F(MachineMemoryTest, KnowsGroupsOfVersionOne) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "200000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MachineMemory(root_), 200000u);
}

TEST_F(MachineMemoryTest, IsZeroIfUnknown) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(MachineMemory(root_), 0u);
}

// In a process of its own, whose limits nobody else has.
TEST(RaiseHardDescriptorLimitTest, RaisesWhatItMay) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit low = {60, 100};
    rlimit now = {};
    setrlimit(RLIMIT_NOFILE, &low);
    // Whether this process may is the system's to say.
    const rlimit wanted = {60, kWantedDescriptors};
    const bool may = setrlimit(RLIMIT_NOFILE, &wanted) == 0 &&
                     setrlimit(RLIMIT_NOFILE, &low) == 0;
    RaiseHardDescriptorLimit();
    getrlimit(RLIMIT_NOFILE, &now);
    const bool is_right = now.rlim_cur == 60 &&
                          now.rlim_max == (may ? kWantedDescriptors : 100) &&
                          RaiseDescriptorLimit() == now.rlim_max;
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace

}  // namespace ballast
