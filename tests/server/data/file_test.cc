#include "server/files/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/image_probe.h"
#include "server/data/jsonl/media_root.h"
#include "server/sample/data_fault.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

size_t FilesIn(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(FileTest, ReadsExactly) {
  const std::string path = TestFolder() + "/a";
  WriteFile(path, "0123456789");
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->ReadAt(2, 3), "234");
  EXPECT_EQ(*file->ReadAt(10, 0), "");
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{8, 3},
                                     {11, 0},
                                     {1, UINT64_MAX},
                                     {UINT64_MAX, 1}}) {
    EXPECT_EQ(file->ReadAt(offset, size).status().code(),
              absl::StatusCode::kDataLoss);
  }
  // Truncates the file after it was opened.
  std::filesystem::resize_file(path, 5);
  EXPECT_EQ(file->ReadAt(2, 8).status().message(),
            path + ": ends at byte 5, wanted 8 bytes at 2");
}

TEST(FileTest, RefusesFilesThatAreNotRegular) {
  const std::string folder = TestFolder();
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder, folder + "/pipe"}) {
    EXPECT_EQ(File::Open(path).status().message(),
              path + ": not a regular file");
    EXPECT_EQ(StampFile(path).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(File::Open(folder + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

// Returns whether reads from memory must succeed in `folder`: on a tmpfs, or a
// file system that supports RWF_NOWAIT.
bool TellsWhatIsInMemory(const std::string& folder) {
  struct statfs system;
  if (statfs(folder.c_str(), &system) != 0) return false;
  return system.f_type == TMPFS_MAGIC || system.f_type == EXT4_SUPER_MAGIC ||
         system.f_type == XFS_SUPER_MAGIC;
}

TEST(FileTest, ReadsJustWrittenBytesFromMemory) {
  const std::string folder = TestFolder();
  const std::string path = folder + "/a";
  WriteFile(path, "0123456789");
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  const auto read = file->ReadAt(2, 3, ReadFrom::kMemory);
  if (TellsWhatIsInMemory(folder)) {
    EXPECT_EQ(read.value_or("none"), "234");
  } else {
    EXPECT_EQ(read.status().code(), absl::StatusCode::kAborted);
  }
  const FileView view(&*file, ReadFrom::kMemory);
  EXPECT_TRUE(view.CheckUnchanged().ok());
  std::filesystem::resize_file(path, 5);
  EXPECT_EQ(view.CheckUnchanged().code(), absl::StatusCode::kUnavailable);
}

// As when a file is copied again in place: shorter for a moment, then the same
// bytes and the same time.
TEST(FileTest, SeesAChangeThatWasTakenBack) {
  const std::string path = TestFolder() + "/a";
  WriteFile(path, "0123456789");
  std::filesystem::last_write_time(path, {});
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  FileView view(&*file);
  std::filesystem::resize_file(path, 5);
  WriteFile(path, "0123456789");
  std::filesystem::last_write_time(path, {});
  EXPECT_EQ(*StampFile(path), file->stamp());
  EXPECT_EQ(view.CheckUnchanged().code(), absl::StatusCode::kUnavailable);
  // A read that begins now is of one version again.
  ASSERT_TRUE(view.Begin().ok());
  EXPECT_EQ(*view.ReadAt(0, 10), "0123456789");
  EXPECT_TRUE(view.CheckUnchanged().ok());
}

// A file that has lost its name keeps its bytes.
TEST(FileTest, ADeletedFileIsUnchanged) {
  const std::string path = TestFolder() + "/a";
  WriteFile(path, "0123456789");
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::remove(path);
  FileView view(&*file);
  ASSERT_TRUE(view.Begin().ok());
  EXPECT_EQ(view.begin().stamp, file->stamp());
  EXPECT_EQ(*view.ReadAt(0, 10), "0123456789");
  EXPECT_TRUE(view.CheckUnchanged().ok());
}

TEST(FileTest, DoesNotWaitForTheDisk) {
  const std::string path = TestFolder() + "/a";
  const std::string bytes(1 << 20, 'x');
  WriteFile(path, bytes);
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  const int descriptor = open(path.c_str(), O_RDONLY);
  ASSERT_EQ(fsync(descriptor), 0);
  ASSERT_EQ(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(descriptor);
  // Reads all of it, as from a tmpfs, or nothing.
  const auto read = file->ReadAt(0, bytes.size(), ReadFrom::kMemory);
  if (read.ok()) {
    EXPECT_EQ(*read, bytes);
  } else {
    EXPECT_EQ(read.status().code(), absl::StatusCode::kAborted);
  }
  EXPECT_EQ(file->ReadAt(0, bytes.size()).value_or("none"), bytes);
}

TEST(AtomicFileTest, ReplacesAndLeavesNothingElse) {
  const std::string folder = TestFolder();
  const std::string path = folder + "/new/deep/file";
  EXPECT_TRUE(WriteFileAtomically(path, {"a", "", "bc"}).ok());
  EXPECT_EQ(ReadFile(path), "abc");
  EXPECT_TRUE(WriteFileAtomically(path, {"d"}).ok());
  EXPECT_EQ(ReadFile(path), "d");
  EXPECT_EQ(FilesIn(folder + "/new/deep"), 1);
}

// A writer that is killed cannot remove its file: the next one does.
TEST(AtomicFileTest, RemovesWhatAKilledWriterLeft) {
  const std::string folder = TestFolder();
  const std::string path = folder + "/docs.index";
  WriteFile(path, "old");
  WriteFile(path + ".writing.a1b2c3", "left over");
  // Files of others stay, and the file of a writer that is at work.
  WriteFile(path + ".backup", "x");
  WriteFile(path + ".check-1-of-1", "x");
  WriteFile(folder + "/more.index.writing.a1b2c3", "x");
  const auto at_work = File::CreateUniqueLocked(path + ".writing");
  ASSERT_TRUE(at_work.ok()) << at_work.status();
  ASSERT_TRUE(WriteFileAtomically(path, {"new"}).ok());
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_FALSE(std::filesystem::exists(path + ".writing.a1b2c3"));
  EXPECT_TRUE(std::filesystem::exists(at_work->path()));
  EXPECT_EQ(FilesIn(folder), 5);
}

TEST(AtomicFileTest, AFailureLeavesNothing) {
  const std::string folder = TestFolder();
  // The rename fails, because the name belongs to a folder that is not empty.
  const std::string path = folder + "/taken";
  WriteFile(path + "/inside", "x");
  EXPECT_FALSE(WriteFileAtomically(path, {"a"}).ok());
  EXPECT_EQ(FilesIn(folder), 1);
  EXPECT_EQ(ReadFile(path + "/inside"), "x");
  WriteFile(folder + "/file", "x");
  EXPECT_FALSE(WriteFileAtomically(folder + "/file/below", {"a"}).ok());
}

TEST(AtomicFileTest, ReplacesNoDeviceOrPipe) {
  const std::string pipe = TestFolder() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(WriteFileAtomically(pipe, {"a"})));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(MediaRootTest, OpensFilesInside) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/root/sub/a.jpg", "inside");
  std::filesystem::create_symlink("sub/a.jpg", folder + "/root/link.jpg");
  std::filesystem::create_symlink("root", folder + "/root_link");
  for (const std::string& root :
       {folder + "/root", folder + "/root/", folder + "/root_link",
        folder + "/./root/../root"}) {
    const auto media = MediaRoot::Create({root});
    ASSERT_TRUE(media.ok()) << media.status();
    EXPECT_TRUE(media->Open("sub/a.jpg").ok());
    EXPECT_TRUE(media->Open("link.jpg").ok());
  }
  EXPECT_EQ(MediaRoot::Create({folder + "/none"}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MediaRootTest, RefusesPathsThatLeadOutside) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/root/a.jpg", "inside");
  WriteFile(folder + "/root2/b.jpg", "outside");
  std::filesystem::create_symlink("../root2/b.jpg", folder + "/root/b.jpg");
  std::filesystem::create_symlink(folder + "/root2", folder + "/root/c");
  const auto media = MediaRoot::Create({folder + "/root"});
  ASSERT_TRUE(media.ok()) << media.status();
  for (const std::string path : {"b.jpg", "c/b.jpg"}) {
    const absl::Status status = media->Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("leads outside"));
  }
  for (const std::string path :
       {"../root2/b.jpg", "/etc/passwd", "file:///etc/passwd", "s3://b/a.jpg",
        "./../root2/b.jpg", ""}) {
    EXPECT_EQ(media->Open(path).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(media->Open("none.jpg").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MediaRootTest, RefusesTheRestWithTheLineThatNamesIt) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/root/a.jpg", "inside");
  WriteFile(folder + "/more/b.jpg", "outside");
  const auto media = MediaRoot::Create({folder + "/root"});
  ASSERT_TRUE(media.ok()) << media.status();
  const std::string real = std::filesystem::canonical(folder);
  for (const std::string& path :
       {std::string("../more/b.jpg"), folder + "/more/b.jpg",
        "file://" + folder + "/more/b.jpg"}) {
    const absl::Status status = media->Open(path).status();
    EXPECT_EQ(GetBadKind(status), "path outside of media_root");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("media_root: [\"" + real + "/root\", \"" + real +
                          "/more\"]"));
  }
  // What the text alone leads elsewhere is not opened: a reader would end the
  // wait of the pipe's writer.
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(std::string(media->Open(pipe).status().message()),
              HasSubstr("leads outside"));
}

TEST(MediaRootTest, FollowsPathsToAnyNamedRoot) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/notes/a.jpg", "1");
  WriteFile(folder + "/images/a.jpg", "22");
  WriteFile(folder + "/images/b.jpg", "333");
  WriteFile(folder + "/images2/c.jpg", "4444");
  std::filesystem::create_symlink(folder + "/images/b.jpg",
                                  folder + "/notes/link.jpg");
  std::filesystem::create_symlink(folder + "/images", folder + "/named");
  const auto media =
      MediaRoot::Create({folder + "/notes", folder + "/images/"});
  ASSERT_TRUE(media.ok()) << media.status();
  const auto size = [&](const std::string& path) {
    const auto file = media->Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->stamp().size : 0;
  };
  EXPECT_EQ(size("a.jpg"), 1u);  // of the first that has it
  EXPECT_EQ(size("b.jpg"), 3u);
  EXPECT_EQ(size("link.jpg"), 3u);
  EXPECT_EQ(size("../images/a.jpg"), 2u);
  EXPECT_EQ(size(folder + "/images/b.jpg"), 3u);
  EXPECT_EQ(size("file://" + folder + "/images/b.jpg"), 3u);
  EXPECT_EQ(size(folder + "/images/../notes/a.jpg"), 1u);
  EXPECT_EQ(size(folder + "/named/b.jpg"), 3u);  // by a link elsewhere
  for (const std::string& path :
       {std::string("../images2/c.jpg"), folder + "/images2/c.jpg"}) {
    EXPECT_THAT(std::string(media->Open(path).status().message()),
                HasSubstr("leads outside"));
  }
  EXPECT_TRUE(absl::IsNotFound(media->Open("none.jpg").status()));
  EXPECT_TRUE(absl::IsNotFound(media->Open(folder + "/none.jpg").status()));
}

TEST(MediaRootTest, FollowsAddressesBelowAPrefix) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/notes/a.jpg", "1");
  WriteFile(folder + "/images/b.jpg", "22");
  WriteFile(folder + "/c.jpg", "333");
  const std::string store = "file://" + folder;
  const auto media = MediaRoot::Create({store + "/notes", store + "/images"});
  ASSERT_TRUE(media.ok()) << media.status();
  for (const std::string& path :
       {std::string("b.jpg"), std::string("../images/b.jpg"),
        store + "/images/b.jpg"}) {
    const auto file = media->Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->stamp().size, 2u) << path;
  }
  for (const std::string& path : {std::string("../c.jpg"), store + "/c.jpg",
                                  store + "/images/../c.jpg"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(media->Open(path).status())) << path;
  }
}

TEST(MediaRootTest, OpensFromMemoryOnlyRegularFilesInside) {
  const std::string folder = TestFolder();
  WriteFile(folder + "/root/a.jpg", "inside");
  WriteFile(folder + "/b.jpg", "outside");
  std::filesystem::create_symlink("../b.jpg", folder + "/root/b.jpg");
  std::filesystem::create_directory(folder + "/root/folder");
  ASSERT_EQ(mkfifo((folder + "/root/pipe").c_str(), 0600), 0);
  const auto media = MediaRoot::Create({folder + "/root"});
  ASSERT_TRUE(media.ok()) << media.status();
  ASSERT_TRUE(media->Open("a.jpg").ok());
  const auto opened = media->Open("a.jpg", ReadFrom::kMemory);
  if (TellsWhatIsInMemory(folder)) {
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->stamp().size, 6u);
    EXPECT_EQ(*opened->ReadAt(0, 6), "inside");
  } else {
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kAborted);
  }
  for (const std::string path : {"b.jpg", "folder", "pipe", "none.jpg"}) {
    EXPECT_EQ(media->Open(path, ReadFrom::kMemory).status().code(),
              absl::StatusCode::kAborted)
        << path;
  }
}

TEST(ImageProbeTest, ReadsMoreIfNeeded) {
  const std::string path = TestFolder() + "/images";
  const size_t far = 300'000;
  const std::string image = FakeImage(20, 10, far);
  WriteFile(path, "before" + image + "after");
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  std::vector<size_t> lengths;
  const auto probed = ProbeImage(
      *file, 6, image.size(),
      [&](absl::string_view bytes) {
        lengths.push_back(bytes.size());
        return ReadFakeImage(bytes);
      },
      JudgeHeader);
  ASSERT_TRUE(probed.ok()) << probed.status();
  EXPECT_EQ(probed->size.width, 20);
  EXPECT_EQ(probed->size.height, 10);
  EXPECT_EQ(probed->mark, ImageMark::Refused(EngineRefusal::kNotJpeg));
  EXPECT_THAT(lengths,
              ::testing::ElementsAre(4096, 16384, 65536, 262144, image.size()));
  EXPECT_EQ(
      ProbeImage(*file, 6, far, ReadFakeImage, JudgeHeader).status().message(),
      "cut inside its header: no mark");
  EXPECT_EQ(
      ProbeImage(*file, 6, 0, ReadFakeImage, JudgeHeader).status().message(),
      "cut inside its header: no mark");
  EXPECT_EQ(
      ProbeImage(*file, 0, 6, ReadFakeImage, JudgeHeader).status().message(),
      "no image");
}

TEST(ImageProbeTest, RefusesASideOfZero) {
  const std::string path = TestFolder() + "/image";
  WriteFile(path, FakeImage(5, 0));
  auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(
      ProbeImage(*file, 0, 9, ReadFakeImage, JudgeHeader).status().message(),
      "an image of 5x0 pixels");
}

}  // namespace
}  // namespace ballast
