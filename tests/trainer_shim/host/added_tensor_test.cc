// A row of the table is all that a tensor needs to be in a batch.

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/trainer_shim/host/added_row.h"
#include "tests/trainer_shim/host/assemble_all.h"

namespace ballast {
namespace {

PackedBatch Assemble(v1::Module module, const JobShape& shape) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = 1;
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  BatchAssembler assembler(RoleOf(module, 0), shape, PixelType::kFloat32,
                           Normalisation::kTorchvision, nullptr);
  const BlockPlan plan =
      PlanBlock(schedule, 0, RoleOf(module, 0), shape.delivery, shape.block)
          .value();
  PackedBatch batch;
  const absl::Status status = assembler.Assemble(
      GetStepInfo(schedule, shape.padding), 0,
      AlignedBuffer(FormulaBlock(plan, shape.block)).bytes(), &batch);
  EXPECT_TRUE(status.ok()) << status;
  return batch;
}

TEST(AddedTensorTest, IsInTheBatchOfItsReceivers) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    SyntheticJob job;
    job.vision_dp = job.language_dp = 1;
    JobShape shape =
        GetShape(SyntheticJobMessage(job), RoleOf(module, 0)).value();
    const PackedBatch without = Assemble(module, shape);
    auto table = std::make_shared<TensorTable>(*shape.tensors);
    table->push_back(EndsRow());
    shape.tensors = table;
    const PackedBatch with = Assemble(module, shape);

    EXPECT_TRUE(without.Get<int32_t>("ends").empty());
    const auto ends = with.Get<int32_t>("ends");
    if (module == v1::MODULE_VISION) {
      EXPECT_TRUE(ends.empty());
      EXPECT_EQ(ComputeDigest(with), ComputeDigest(without));
      continue;
    }
    ASSERT_EQ(ends.size(), with.samples.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(ends[i], with.text.cu_seqlens[i + 1]);
    }
    EXPECT_NE(ComputeDigest(with), ComputeDigest(without));
    // It has a place among a device's lists, after all others.
    EXPECT_EQ(FindTensor(with, "ends")->offset, without.list_bytes);
    EXPECT_GT(with.list_bytes, without.list_bytes);
    std::vector<std::string> names;
    for (const TensorView& view : with.Views()) names.push_back(view.name);
    EXPECT_EQ(names[names.size() - 2], "ends");
    EXPECT_EQ(names.back(), "ends_host");
  }
}

// A batch has one tensor of a name: rows that share it have other types, of
// which the job decides (position_ids).
TEST(TensorTableTest, NamesAreUnique) {
  std::vector<std::pair<std::string, ElementType>> names;
  std::set<std::string> shared;
  const std::shared_ptr<const TensorTable> table = MakeTensorTable();
  for (const TensorRow& row : *table) {
    for (const auto& [name, type] : names) {
      if (name == row.name) shared.insert(name);
    }
    names.emplace_back(row.name, row.type);
    if (row.memory == Memory::kListed) {
      names.emplace_back(row.host_name, row.type);
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(shared,
            (std::set<std::string>{"pack_position_ids", "position_ids"}));
}

}  // namespace
}  // namespace ballast
