// Writes the seeds of the fuzz targets of binary formats:
//   write_seeds TAR INDEX BLOCK REQUESTS ENERGON

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/block/block_view.h"
#include "proto/loader_service.pb.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/index/index_writer.h"
#include "server/data/tar/tar_reader.h"
#include "tests/fuzz/seeds.h"

namespace ballast {
namespace {

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "write_seeds: %s\n", status.ToString().c_str());
  std::exit(1);
}

void WriteTarSeed(const std::string& path) {
  auto writer = TarWriter::Create(path);
  Must(writer.status());
  const auto add = [&](const std::string& name, const std::string& bytes) {
    Must((*writer)->Add(name, bytes));
  };
  add("0001.json", R"({"conversations": []})");
  add("0001.jpg", "an image");
  add("dir/0002.txt", "a document");
  add("dir/0002.0.png", std::string(600, 'i'));
  add("dir/0002.1.webp", "");
  // Over 100 bytes, split at a slash.
  add(std::string(110, 'd') + "/" + std::string(60, 'n') + ".json", "{}");
  add("README", "ignored");
  add("0003.mp4", "a video");
  Must((*writer)->Finish());
}

void WriteIndexSeed(const std::string& path) {
  IndexContents contents;
  contents.format = 1;
  contents.files = {{"docs-0.tar", {4096, 1}}, {"docs-1.tar", {8192, 2}}};
  contents.images = {{640, 480}, {56, 56}, {1000, 2000}};
  contents.samples.resize(3);
  for (uint32_t i = 0; i < 3; ++i) {
    IndexSampleRecord& sample = contents.samples[i];
    sample.file = i / 2;
    sample.offset = i % 2 * 1024;
    sample.length = 1024;
    sample.first_image = i == 0 ? 0 : 2;
    sample.num_images = i == 0 ? 2 : i - 1;
    sample.text_tokens = 100 + i;
    sample.label_tokens = 10;
  }
  IndexSampleRecord left_out = contents.samples[2];
  left_out.offset = 2048;
  left_out.first_image = 3;
  contents.left_out.push_back(left_out);
  contents.images.push_back({77, 88});
  contents.marks = {ImageMark::Marked(700, ImageCheckResult::kClean),
                    ImageMark::Refused(EngineRefusal::kProcess),
                    ImageMark::Marked(800, ImageCheckResult::kUnsound),
                    ImageMark::Marked(900)};
  contents.content_hashes = {0x123456789abcdef0, 0, 0, 0};
  Must(WriteIndex(path, contents));
}

void WriteBlockSeed(const std::string& path) {
  const BlockPlan plan = SeedPlan();
  std::vector<uint64_t> storage(plan.bytes() / sizeof(uint64_t));
  const absl::Span<uint8_t> block(reinterpret_cast<uint8_t*>(storage.data()),
                                  plan.bytes());
  WriteBlockTables(plan, block);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(block.data()),
             static_cast<std::streamsize>(block.size()));
}

void WriteRequestSeed(const std::string& path) {
  std::vector<v1::PullRequest> requests(5);
  v1::PullRequest::Open& open = *requests[0].mutable_open();
  open.mutable_role()->set_module(v1::MODULE_VISION);
  open.set_step(7);
  open.set_steps(2);
  open.set_fingerprint(kSeedHash);
  open.set_credit(1 << 20);
  open.set_accepts_arena(true);
  requests[1].mutable_mapped()->set_nonce(kSeedNonce);
  requests[2].mutable_credit()->set_bytes(0);
  requests[3].mutable_credit()->add_blocks(1);
  requests[4].mutable_stop();
  std::ofstream out(path, std::ios::binary);
  for (const v1::PullRequest& request : requests) {
    const std::string bytes = request.SerializeAsString();
    out << static_cast<char>(bytes.size()) << bytes;
  }
}

// The index.sqlite of a folder of two tars.
void WriteEnergonSeed(const std::string& path) {
  const std::string folder = path + ".folder";
  std::filesystem::create_directories(folder);
  WriteTarSeed(folder + "/a.tar");
  auto writer = TarWriter::Create(folder + "/b.tar");
  Must(writer.status());
  Must((*writer)->Add("1.json", "[]"));
  Must((*writer)->Add("1.jpg", "an image"));
  Must((*writer)->Finish());
  Must(WriteEnergonMeta({folder, {"a.tar", "b.tar"}, {}, kCrudeDataset}));
  std::filesystem::rename(folder + "/.nv-meta/index.sqlite", path);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  ballast::WriteTarSeed(argv[1]);
  ballast::WriteIndexSeed(argv[2]);
  ballast::WriteBlockSeed(argv[3]);
  ballast::WriteRequestSeed(argv[4]);
  ballast::WriteEnergonSeed(argv[5]);
  return 0;
}
