#include "tests/server/job/family_job.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/config_loader.h"
#include "server/delivery/block.h"
#include "server/job/index_sources.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  ASSERT_TRUE(file.flush()) << path;
}

}  // namespace

void WriteConversations(const std::string& directory,
                        absl::Span<const TestSample> samples) {
  std::filesystem::create_directories(directory);
  std::string lines;
  for (const TestSample& sample : samples) {
    const nlohmann::json line = {
        {"messages", nlohmann::json::parse(sample.messages_json)},
        {"images", sample.images}};
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  WriteFile(directory + "/chat.jsonl", lines);
}

void WritePicture(const std::string& path, uint32_t height, uint32_t width,
                  uint64_t seed, FileFormat format) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  const auto shade = static_cast<uint8_t>(seed * 37);
  const PlainPicture picture = PlainPicture::Grained(
      static_cast<int>(width), static_cast<int>(height), {shade, 30, 200},
      {220, shade, 10}, seed, /*stream=*/1);
  WriteFile(path, picture.Encode(format, 100));
}

BlockView BuiltBlock::view() const {
  return BlockView::Parse(bytes->bytes()).value();
}

std::vector<RgbImage> BuiltBlock::Crops(uint32_t i) const {
  const BlockView block = view();
  const SampleRecord& sample = block.samples()[i];
  std::vector<RgbImage> crops;
  for (const ImageRecord& record : block.images(sample)) {
    const auto pixels =
        block.payload(sample).subspan(record.data, PixelBytes(record));
    crops.push_back(
        {record.width, record.height, {pixels.begin(), pixels.end()}});
  }
  return crops;
}

namespace {

std::vector<int32_t> ArrayOf(const BlockView& block, uint32_t i,
                             uint64_t offset, uint64_t length) {
  const auto bytes = block.payload(block.samples()[i]);
  const auto* begin = reinterpret_cast<const int32_t*>(bytes.data() + offset);
  return {begin, begin + length};
}

}  // namespace

std::vector<int32_t> BuiltBlock::Ids(uint32_t i) const {
  const BlockView block = view();
  const uint32_t tokens = block.samples()[i].tokens;
  return ArrayOf(block, i, LayOutLanguage(tokens, 1).ids, tokens);
}

std::vector<int32_t> BuiltBlock::Labels(uint32_t i) const {
  const BlockView block = view();
  const uint32_t tokens = block.samples()[i].tokens;
  return ArrayOf(block, i, LayOutLanguage(tokens, 1).labels, tokens);
}

std::vector<int32_t> BuiltBlock::Positions(uint32_t i, uint32_t axes) const {
  const BlockView block = view();
  const uint32_t tokens = block.samples()[i].tokens;
  return ArrayOf(block, i, LayOutLanguage(tokens, axes).positions,
                 uint64_t{axes} * tokens);
}

absl::StatusOr<std::unique_ptr<FamilyJob>> FamilyJob::Open(
    const std::string& directory, uint32_t samples, const std::string& model,
    const std::string& more) {
  BALLAST_ASSIGN_OR_RETURN(
      const LoadedConfig config,
      ParseConfig(
          absl::StrCat(
              "sources: [{name: chat, format: jsonl, path: chat.jsonl}]\n",
              more.find("order:") == std::string::npos
                  ? "order: {shuffle: false}\n"
                  : "",
              "model: ", model, "\n",
              more.find("topology:") == std::string::npos
                  ? "topology: {modules: {vision: {}, language: {}}}\n"
                  : "",
              "serve: {threads: 1, listen: ['unix:/replaced']}\n", more,
              more.find("batch:") == std::string::npos
                  ? absl::StrCat("\nbatch: {global: ", samples,
                                 ", micro: ", samples, ", max_tokens: 100000}")
                  : ""),
          "test.yaml", directory));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceIndexing> indexed,
                           IndexSources(config, {}));
  for (const BadSample& bad : indexed[0].report.bad) {
    return absl::DataLossError(
        absl::StrCat("sample ", bad.key, ": ", bad.reason));
  }
  std::unique_ptr<FamilyJob> job(new FamilyJob);
  BALLAST_ASSIGN_OR_RETURN(job->job_, OpenJob(config));
  job->builder_ = std::make_unique<FileSampleBuilder>(
      job->job_.config,
      FileSampleBuilder::Job{job->job_.source_pointers(), job->job_.text.get(),
                             job->job_.scheduler.get()});
  return job;
}

absl::StatusOr<BuiltBlock> FamilyJob::Build(v1::Module module, uint64_t step,
                                            uint32_t rank) const {
  BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                           job_.scheduler->Schedule(step));
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  BALLAST_ASSIGN_OR_RETURN(
      PlannedBlock planned,
      PlanForBuilding(schedule, 0, role, v1::DELIVERY_DIRECT,
                      GetGeometry(job_.scheduler->job())));
  BuiltBlock built;
  built.plan = planned.plan;
  BALLAST_ASSIGN_OR_RETURN(AlignedBuffer bytes,
                           AlignedBuffer::Create(planned.plan.bytes()));
  built.bytes = std::make_unique<AlignedBuffer>(std::move(bytes));
  absl::Status status;
  BlockBuild build(std::move(planned), builder_.get(), built.bytes->bytes(),
                   /*wants_checksum=*/false,
                   [&](const auto& checksum) { status = checksum.status(); });
  if (build.Start()) {
    for (uint32_t item = 0; item < build.items(); ++item) build.Run(item);
  }
  BALLAST_RETURN_IF_ERROR(status);
  BALLAST_RETURN_IF_ERROR(BlockView::Parse(built.bytes->bytes()).status());
  return built;
}

}  // namespace ballast
