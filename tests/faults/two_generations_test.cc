// A server that dies and is started again while a rank still holds blocks in
// the dead one's arena, on a file system without room for a second arena.

#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "server/config/config_loader.h"
#include "tests/fakes/dead_arenas.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "trainer_shim/region_pins.h"
#include "trainer_shim/role_source.h"
#include "trainer_shim/staging_queue.h"

namespace ballast {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kSamples = 64;
constexpr uint64_t kArena = uint64_t{64} << 20;
constexpr uint64_t kRoom = kArena + kArena / 4;

class NoPinner : public MemoryPinner {
 public:
  absl::Status Pin(const MemoryRegion&) override { return absl::OkStatus(); }
  absl::Status Unpin(const MemoryRegion&) override { return absl::OkStatus(); }
};

// A staged batch whose block the device reads at once.
class ReadAtOnce : public StagedBlock {
 public:
  absl::StatusOr<bool> HasBeenRead() const override { return true; }
  absl::Status AwaitRead() const override { return absl::OkStatus(); }
};

class TwoGenerationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = TestFolder();
    arenas_ = folder_ + "/arenas";
    std::filesystem::create_directories(arenas_);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", arenas_.c_str(), "tmpfs", 0,
              absl::StrCat("size=", kRoom).c_str()) != 0) {
      GTEST_SKIP() << "cannot mount a tmpfs of a fixed size: "
                   << strerror(errno);
    }
    ASSERT_TRUE(WriteFormulaDataset(folder_ + "/docs-0.tar", kSamples).ok());
    TestJob job = GridJob(1, 1, "direct");
    job.batch = "global: 4, micro: 4";
    job.serve = absl::StrCat(", prefetch_steps: 4, arena: '", arenas_, "'");
    job.more = "order: {shuffle: false}\n";
    LoadedConfig config = ParseJob(job, folder_);
    config.config.mutable_serve()->set_memory(kArena);
    cluster_ = StartCluster(config);
    OpenSource(/*steps=*/0);
  }
  void TearDown() override { umount2(arenas_.c_str(), MNT_DETACH); }

  void OpenSource(uint64_t steps) {
    std::vector<std::unique_ptr<LoaderClient>> clients;
    clients.push_back(LoaderClient::Create(cluster_->addresses()[0]));
    RoleSource::Options options;
    options.role.set_module(v1::MODULE_VISION);
    options.steps = steps;
    options.failover.first_backoff = absl::Milliseconds(20);
    options.failover.max_backoff = absl::Milliseconds(20);
    auto source = RoleSource::Create(std::move(clients), options);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }

  // As a rank on a GPU stages blocks: each is held until `most` later ones are
  // staged.
  void Stage(size_t most) {
    auto next = source_->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->block->step(), step_++) << "lost or repeated";
    pins_->Pin(next->block->region());
    blocks_.push_back(std::move(next->block));
    while (blocks_.size() > most) blocks_.pop_front();
  }

  void KillAndRestart() {
    cluster_->Kill(0);
    const absl::Status restarted = cluster_->Restart(0);
    ASSERT_TRUE(restarted.ok()) << restarted;
  }

  std::string filler() const { return arenas_ + "/filler"; }

  // Leaves at most `free` bytes of the arenas' file system.
  void FillBut(uint64_t free) {
    std::ofstream(filler()).close();
    std::filesystem::resize_file(filler(), 0);
    // Again where ranks let go of an arena meanwhile.
    for (uint64_t now; (now = Free()) > free;) {
      std::ofstream(filler(), std::ios::app) << std::string(now - free, 'x');
    }
  }

  uint64_t Free() const { return std::filesystem::space(arenas_).available; }

  uint64_t Used() const {
    struct statvfs files;
    EXPECT_EQ(statvfs(arenas_.c_str(), &files), 0);
    return (files.f_blocks - files.f_bavail) * files.f_frsize;
  }

  std::string folder_;
  std::string arenas_;
  std::unique_ptr<TestCluster> cluster_;
  NoPinner pinner_;
  const std::unique_ptr<RegionPins> pins_ =
      *RegionPins::Create(&pinner_, {absl::Milliseconds(1), Clock::Real()});
  uint64_t step_ = 0;
  std::deque<std::unique_ptr<FetchedBlock>> blocks_;
  std::unique_ptr<RoleSource> source_;
};

// The restarted server starts beside the memory that the rank's pins keep, and
// the rank goes on in the new arena; in the end only that one is left.
TEST_F(TwoGenerationsTest, ARestartedServerFindsRoomAndTheRankLetsGo) {
  for (int generation = 0; generation < 3; ++generation) {
    for (int i = 0; i < 40; ++i) Stage(/*most=*/8);
    cluster_->Kill(0);
    FillBut(kArena / 4);
    const absl::Status restarted = cluster_->Restart(0);
    ASSERT_TRUE(restarted.ok()) << restarted;
    std::filesystem::remove(filler());
  }
  for (int i = 0; i < 40; ++i) Stage(/*most=*/8);
  const auto region = blocks_.back()->region();
  ASSERT_NE(region, nullptr);
  EXPECT_TRUE(region->read_only()) << "not in shared memory";
  blocks_.clear();
  // The thread of pins_ has until the test's time-out.
  while (Used() > kArena) std::this_thread::yield();
}

// Blocks come over the stream then.
TEST_F(TwoGenerationsTest, AServerStartsOnAFullFileSystem) {
  for (int i = 0; i < 20; ++i) Stage(/*most=*/8);
  cluster_->Kill(0);
  FillBut(0);
  const absl::Status restarted = cluster_->Restart(0);
  ASSERT_TRUE(restarted.ok()) << restarted;
  // The rank first uses up what it has pulled from the dead server.
  for (int i = 0; i < 120; ++i) Stage(/*most=*/8);
  const auto region = blocks_.back()->region();
  ASSERT_NE(region, nullptr);
  EXPECT_FALSE(region->read_only()) << "in shared memory";
}

// The last blocks that a rank pulls can be a dead server's. They are let go of
// once the device has read them, although no block comes after them.
TEST_F(TwoGenerationsTest, ARankAtTheEndOfItsStepsKeepsNoDeadArena) {
  constexpr uint64_t kSteps = 60;
  OpenSource(kSteps);
  ReadAtOnce batches[4];
  StagingQueue queue;
  for (ReadAtOnce& batch : batches) queue.Add(&batch);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const auto free = queue.TakeFree();
    ASSERT_TRUE(free.ok()) << free.status();
    auto next = source_->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->block->step(), step) << "lost or repeated";
    EXPECT_TRUE(pins_->Pin(next->block->region()));
    (*free)->block = std::move(next->block);
    queue.Return(*free);
  }
  EXPECT_EQ(source_->Next().status().code(), absl::StatusCode::kOutOfRange);
  ArenaWatch arena;
  arena.Watch(arenas_);
  KillAndRestart();
  EXPECT_THAT(DeadArenas(), SizeIs(1)) << "not pulled from";
  queue.DropRead();
  EXPECT_TRUE(arena.AwaitGone(absl::Seconds(30)));
  EXPECT_THAT(DeadArenas(), IsEmpty()) << "kept";
}

}  // namespace
}  // namespace ballast
