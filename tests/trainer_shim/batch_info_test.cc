#include "trainer_shim/batch_info.h"

#include <atomic>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/edit_batch.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

// Tensors and totals of batches, and which of them ranks at all places of a
// module receive, from shims over a fake server.

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr v1::Module kLanguage = v1::MODULE_LANGUAGE;
constexpr v1::Module kVision = v1::MODULE_VISION;

// The tensors that a rank receives, one letter each: input Ids, Labels,
// Positions, piXels.
std::string Letters(const BatchFields& fields) {
  std::string text;
  if (fields.input_ids) text += 'I';
  if (fields.labels) text += 'L';
  if (fields.positions) text += 'P';
  if (fields.pixels) text += 'X';
  return text;
}

TEST(RoleFieldsTest, FollowModuleAndStage) {
  TrainerPlace predicts_more;
  predicts_more.needs_input_ids = predicts_more.needs_labels = true;
  TrainerPlace wants_labels;
  wants_labels.needs_labels = true;
  const struct {
    v1::Module module;
    uint32_t pp_rank;
    uint32_t pp;
    TrainerPlace place;
    const char* fields;
  } rows[] = {
      {kLanguage, 0, 1, {}, "ILP"},
      {kLanguage, 0, 2, {}, "IP"},
      {kLanguage, 1, 2, {}, "LP"},
      {kLanguage, 0, 4, {}, "IP"},
      {kLanguage, 1, 4, {}, "P"},
      {kLanguage, 2, 4, {}, "P"},
      {kLanguage, 3, 4, {}, "LP"},
      // Multi-token prediction, on any stage.
      {kLanguage, 3, 4, predicts_more, "ILP"},
      {kLanguage, 2, 4, predicts_more, "ILP"},
      {kLanguage, 0, 4, wants_labels, "ILP"},
      {kLanguage, 1, 4, wants_labels, "LP"},
      {kVision, 0, 1, {}, "X"},
      {kVision, 0, 2, {}, "X"},
      {kVision, 1, 2, {}, ""},
      {kVision, 1, 2, predicts_more, ""},
      {kVision, 0, 2, predicts_more, "X"},
  };
  for (const auto& row : rows) {
    for (const uint32_t tp_rank : {0u, 3u}) {
      for (const uint32_t cp_rank : {0u, 1u}) {
        TrainerPlace place = row.place;
        place.tp_rank = tp_rank;
        place.cp_rank = cp_rank;
        place.pp_rank = row.pp_rank;
        const ModuleLayout layout = {4, row.pp, 2};
        const BatchFields fields = GetFields(row.module, place, layout);
        EXPECT_EQ(Letters(fields), row.fields)
            << row.module << " stage " << row.pp_rank << " of " << row.pp;
        EXPECT_EQ(fields.any(), *row.fields != '\0');
      }
    }
  }
}

// Virtual stages: chunk c of rank r is stage c * pp + r.
TEST(RoleFieldsTest, ARankReceivesTheUnionOverItsParts) {
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, GetStage(0, 4, 0, 2), {})), "IP");
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, GetStage(0, 4, 1, 2), {})), "P");
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, GetStage(3, 4, 0, 2), {})), "P");
  EXPECT_EQ(Letters(FieldsOfStage(kLanguage, GetStage(3, 4, 1, 2), {})), "LP");
  for (const v1::Module module : {kLanguage, kVision}) {
    for (const uint32_t pp : {1u, 2u, 4u}) {
      for (const uint32_t parts : {1u, 2u, 3u}) {
        for (uint32_t rank = 0; rank < pp; ++rank) {
          BatchFields all = {false, false, false, false};
          for (uint32_t part = 0; part < parts; ++part) {
            const BatchFields each =
                FieldsOfStage(module, GetStage(rank, pp, part, parts), {});
            all.input_ids |= each.input_ids;
            all.labels |= each.labels;
            all.positions |= each.positions;
            all.pixels |= each.pixels;
          }
          TrainerPlace place;
          place.pp_rank = rank;
          EXPECT_EQ(GetFields(module, place, {1, pp, 1}), all);
        }
      }
    }
  }
}

TEST(RoleFieldsTest, ARankThatDoesNotExistIsNamed) {
  const ModuleLayout layout = {2, 4, 8};
  TrainerPlace place;
  place.tp_rank = 1;
  place.pp_rank = 3;
  place.cp_rank = 7;
  EXPECT_TRUE(CheckPlace(place, layout).ok());
  place.tp_rank = 2;
  EXPECT_THAT(CheckPlace(place, layout).message(),
              HasSubstr("2 tensor-parallel ranks; rank 2"));
  place.tp_rank = 0;
  place.pp_rank = 4;
  EXPECT_THAT(CheckPlace(place, layout).message(),
              HasSubstr("4 pipeline-parallel ranks; rank 4"));
  place.pp_rank = 0;
  place.cp_rank = 9;
  EXPECT_EQ(CheckPlace(place, layout).code(),
            absl::StatusCode::kInvalidArgument);
}

constexpr uint64_t kSteps = 2;

SyntheticJob Job() {
  SyntheticJob job;
  job.delivery = v1::DELIVERY_DIRECT;
  job.align = 8;
  return job;
}

TrainerPlace GetPlace(uint32_t tp_rank, uint32_t pp_rank, uint32_t cp_rank) {
  TrainerPlace place;
  place.tp_rank = tp_rank;
  place.pp_rank = pp_rank;
  place.cp_rank = cp_rank;
  return place;
}

TrainerShim::Options GetOptions(v1::Module module, const TrainerPlace& place) {
  TrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.role.set_dp_rank(1);
  options.source.place = place;
  options.source.start_step = 3;
  options.source.steps = kSteps;
  return options;
}

std::unique_ptr<TrainerShim> ShimOf(const FakeLoader& loader,
                                    TrainerShim::Options options) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(loader));
  auto shim = TrainerShim::Create(std::move(options), std::move(clients));
  EXPECT_TRUE(shim.ok()) << shim.status();
  return *std::move(shim);
}

// All batches of dp rank 1 of `module` at one place, up to the end of the
// steps.
std::vector<PackedBatch> BatchesOf(const SyntheticJob& job, v1::Module module,
                                   const TrainerPlace& place,
                                   const FakeLoader& hooks = {}) {
  FakeLoader loader = hooks;
  loader.job = job;
  const auto shim = ShimOf(loader, GetOptions(module, place));
  std::vector<PackedBatch> batches;
  while (true) {
    const auto batch = shim->Next();
    if (!batch.ok()) {
      EXPECT_EQ(batch.status().code(), absl::StatusCode::kOutOfRange)
          << batch.status();
      EXPECT_EQ(shim->Next().status(), batch.status());
      return batches;
    }
    EXPECT_EQ(shim->schedule()->step(), (*batch)->step);
    batches.push_back(**batch);
  }
}

constexpr v1::Module kTrainerPlaceLanguage = v1::MODULE_LANGUAGE;
constexpr v1::Module kTrainerPlaceVision = v1::MODULE_VISION;

// The tokens of `whole` that a context rank has, selected by their places.
template <typename T>
std::vector<T> Pick(absl::Span<const T> whole,
                    const std::vector<int32_t>& indices, uint32_t axes = 1) {
  std::vector<T> picked;
  for (uint32_t axis = 0; axis < axes; ++axis) {
    for (const int32_t i : indices) {
      picked.push_back(whole[axis * (whole.size() / axes) + i]);
    }
  }
  return picked;
}

TEST(TrainerPlaceTest, ContextRanksHaveTheirSlicesOfTheWhole) {
  const std::vector<PackedBatch> whole =
      BatchesOf(Job(), kTrainerPlaceLanguage, {});
  ASSERT_EQ(whole.size(), kSteps * Job().micro_batches);
  for (const uint32_t cp : {2u, 4u}) {
    SyntheticJob job = Job();
    job.cp = cp;
    for (uint32_t rank = 0; rank < cp; ++rank) {
      const auto slices =
          BatchesOf(job, kTrainerPlaceLanguage, GetPlace(0, 0, rank));
      ASSERT_EQ(slices.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        const auto indices =
            ContextIndices(whole[i].text.cu_seqlens_padded, {cp, rank});
        ASSERT_TRUE(indices.ok()) << indices.status();
        const PackedBatch& slice = slices[i];
        EXPECT_EQ(slice.Get<int64_t>("input_ids"),
                  Pick(whole[i].Get<int64_t>("input_ids"), *indices));
        EXPECT_EQ(slice.Get<int64_t>("labels"),
                  Pick(whole[i].Get<int64_t>("labels"), *indices));
        EXPECT_EQ(slice.Get<float>("loss_mask"),
                  Pick(whole[i].Get<float>("loss_mask"), *indices));
        EXPECT_EQ(slice.Get<int64_t>("position_ids"),
                  Pick(whole[i].Get<int64_t>("position_ids"), *indices, 3));
        EXPECT_EQ(slice.text.cu_seqlens, whole[i].text.cu_seqlens);
        EXPECT_EQ(slice.text.cu_seqlens_padded,
                  whole[i].text.cu_seqlens_padded);
        EXPECT_EQ(slice.max_seqlen, whole[i].max_seqlen);
        EXPECT_EQ(slice.totals, whole[i].totals);
      }
    }
  }
}

TEST(TrainerPlaceTest, StagesReceiveTheirFieldsOfTheSameBatch) {
  const std::vector<PackedBatch> whole =
      BatchesOf(Job(), kTrainerPlaceLanguage, {});
  SyntheticJob job = Job();
  job.pp = 3;
  for (uint32_t stage = 0; stage < 3; ++stage) {
    const auto batches =
        BatchesOf(job, kTrainerPlaceLanguage, GetPlace(0, stage, 0));
    ASSERT_EQ(batches.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      PackedBatch wanted = whole[i];
      if (stage != 0) DropTensor(&wanted, "input_ids");
      if (stage != 2) {
        DropTensor(&wanted, "labels");
        DropTensor(&wanted, "loss_mask");
      }
      EXPECT_EQ(ComputeDigest(batches[i]), ComputeDigest(wanted)) << stage;
      EXPECT_EQ(batches[i].totals, wanted.totals);
      EXPECT_EQ(batches[i].step_totals, wanted.step_totals);
    }
  }
}

TEST(TrainerPlaceTest, PixelsAreNotCutAndTensorPeersAreEqual) {
  const std::vector<PackedBatch> whole =
      BatchesOf(Job(), kTrainerPlaceVision, {});
  SyntheticJob job = Job();
  job.tp = job.cp = 2;
  for (const uint32_t rank : {0u, 1u}) {
    const auto batches =
        BatchesOf(job, kTrainerPlaceVision, GetPlace(rank, 0, rank));
    ASSERT_EQ(batches.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(ComputeDigest(batches[i]), ComputeDigest(whole[i]));
    }
  }
}

// A rank that needs no data has samples and totals, but no tensor and no block.
TEST(TrainerPlaceTest, LaterStagesOfVisionPullNothing) {
  const std::vector<PackedBatch> whole =
      BatchesOf(Job(), kTrainerPlaceVision, {});
  for (const bool dynamic : {false, true}) {
    SyntheticJob job = Job();
    job.pp = 2;
    job.dynamic = dynamic;
    // Also without a communicator, though samples are exchanged.
    job.delivery = v1::DELIVERY_EXCHANGE;
    std::atomic<int> fetches = 0;
    FakeLoader hooks;
    hooks.before_fetch = [&](const v1::Role&, uint64_t, uint32_t) {
      ++fetches;
      return absl::OkStatus();
    };
    const auto batches =
        BatchesOf(job, kTrainerPlaceVision, GetPlace(0, 1, 0), hooks);
    EXPECT_EQ(fetches, 0);
    if (dynamic) {
      // Steps 3 and 4 have 1 and 2 micro-batches.
      ASSERT_EQ(batches.size(), 3);
      EXPECT_EQ(batches[0].step, 3);
      EXPECT_EQ(batches[2].step, 4);
      EXPECT_EQ(batches[2].micro_batch, 1);
      continue;
    }
    ASSERT_EQ(batches.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      PackedBatch nothing;
      EXPECT_EQ(ComputeDigest(batches[i]), ComputeDigest(nothing));
      EXPECT_EQ(batches[i].step, whole[i].step);
      EXPECT_EQ(batches[i].micro_batch, whole[i].micro_batch);
      EXPECT_EQ(batches[i].totals, whole[i].totals);
      EXPECT_EQ(batches[i].step_totals, whole[i].step_totals);
      ASSERT_EQ(batches[i].samples.size(), whole[i].samples.size());
      EXPECT_EQ(batches[i].samples[0].name, whole[i].samples[0].name);
      EXPECT_EQ(batches[i].bytes_read, 0);
    }
  }
}

// The batches that a tensor peer got, and the status that ended it.
struct PeerRun {
  std::vector<PackedBatch> batches;
  absl::Status end;
};

// Runs all tensor ranks of dp rank 1, each in a thread; rank 0 pulls for all.
std::vector<PeerRun> Broadcast(const FakeLoader& loader, v1::Module module) {
  const uint32_t tp = loader.job.tp;
  auto groups = InProcessGroup(tp);
  std::vector<PeerRun> runs(tp);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < tp; ++rank) {
    threads.emplace_back([&, rank] {
      TrainerShim::Options options = GetOptions(module, GetPlace(rank, 0, 0));
      options.tensor_communicator = std::move(groups[rank]);
      const auto shim = ShimOf(loader, std::move(options));
      PeerRun& run = runs[rank];
      while (run.end.ok()) {
        const auto batch =
            rank == 0 ? shim->Next() : shim->ReceiveFromTensorPeer();
        run.end = batch.status();
        if (!batch.ok()) break;
        run.batches.push_back(**batch);
        if (rank == 0) run.end = shim->SendToTensorPeers();
      }
      EXPECT_EQ(rank == 0 ? shim->Next().status()
                          : shim->ReceiveFromTensorPeer().status(),
                run.end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

TEST(TensorBroadcastTest, PeersGetWhatRankZeroGot) {
  for (const v1::Module module : {kTrainerPlaceVision, kTrainerPlaceLanguage}) {
    FakeLoader loader;
    loader.job = Job();
    loader.job.tp = 3;
    std::atomic<int> fetches = 0;
    loader.before_fetch = [&](const v1::Role&, uint64_t, uint32_t) {
      ++fetches;
      return absl::OkStatus();
    };
    const std::vector<PackedBatch> alone = BatchesOf(Job(), module, {});
    const std::vector<PeerRun> runs = Broadcast(loader, module);
    EXPECT_EQ(fetches, static_cast<int>(alone.size())) << "only rank 0 pulls";
    for (const PeerRun& run : runs) {
      EXPECT_EQ(run.end.code(), absl::StatusCode::kOutOfRange) << run.end;
      ASSERT_EQ(run.batches.size(), alone.size());
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(ComputeDigest(run.batches[i]), ComputeDigest(alone[i]));
        EXPECT_EQ(run.batches[i].totals, alone[i].totals);
        EXPECT_EQ(run.batches[i].dummy_image, alone[i].dummy_image);
      }
    }
  }
}

TEST(TensorBroadcastTest, RankZerosFailureEndsItsPeersWithItsCause) {
  FakeLoader loader;
  loader.job = Job();
  loader.job.tp = 2;
  loader.before_fetch = [](const v1::Role&, uint64_t step, uint32_t) {
    return step == 4 ? absl::DataLossError("checksum of the block")
                     : absl::OkStatus();
  };
  for (const PeerRun& run : Broadcast(loader, kTrainerPlaceLanguage)) {
    EXPECT_EQ(run.batches.size(), Job().micro_batches);
    EXPECT_EQ(run.end.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(run.end.message(), HasSubstr("checksum of the block"));
  }
}

// All batches have one size, so sizes do not show it.
TEST(TensorBroadcastTest, ABatchThatRankZeroDidNotSendIsFound) {
  FakeLoader loader;
  loader.job = Job();
  loader.job.tp = 2;
  loader.job.padded = true;
  loader.job.row_length = 96;
  auto group = InProcessGroup(2);
  absl::Status received;
  std::thread peer([&] {
    TrainerShim::Options options =
        GetOptions(kTrainerPlaceLanguage, GetPlace(1, 0, 0));
    options.tensor_communicator = std::move(group[1]);
    received =
        ShimOf(loader, std::move(options))->ReceiveFromTensorPeer().status();
  });
  TrainerShim::Options options =
      GetOptions(kTrainerPlaceLanguage, GetPlace(0, 0, 0));
  options.tensor_communicator = std::move(group[0]);
  const auto shim = ShimOf(loader, std::move(options));
  EXPECT_TRUE(shim->Next().ok());
  EXPECT_TRUE(shim->Next().ok());
  EXPECT_TRUE(shim->SendToTensorPeers().ok());
  peer.join();
  EXPECT_EQ(received.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(received.message(),
              HasSubstr("tensor rank 0 sent step 3 micro-batch 1, wanted step "
                        "3 micro-batch 0"));
}

TEST(TensorBroadcastTest, TheWrongCallIsRefusedWithoutEndingTheShim) {
  FakeLoader loader;
  loader.job = Job();
  loader.job.tp = 2;
  auto group = InProcessGroup(2);
  const auto refused = absl::StatusCode::kFailedPrecondition;
  {
    TrainerShim::Options options =
        GetOptions(kTrainerPlaceLanguage, GetPlace(1, 0, 0));
    options.tensor_communicator = std::move(group[1]);
    const auto shim = ShimOf(loader, std::move(options));
    EXPECT_EQ(shim->Next().status().code(), refused);
    EXPECT_EQ(shim->SendToTensorPeers().code(), refused);
  }
  // Without a group each rank pulls for itself.
  const auto shim =
      ShimOf(loader, GetOptions(kTrainerPlaceLanguage, GetPlace(1, 0, 0)));
  EXPECT_EQ(shim->ReceiveFromTensorPeer().status().code(), refused);
  EXPECT_EQ(shim->SendToTensorPeers().code(), refused);
  EXPECT_TRUE(shim->Next().ok());
}

TEST(TensorBroadcastTest, AGroupOfOtherRanksIsRefused) {
  FakeLoader loader;
  loader.job = Job();
  loader.job.tp = 2;
  TrainerShim::Options options =
      GetOptions(kTrainerPlaceLanguage, GetPlace(1, 0, 0));
  options.tensor_communicator = std::move(InProcessGroup(3)[1]);
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(loader));
  const auto shim = TrainerShim::Create(std::move(options), std::move(clients));
  EXPECT_EQ(shim.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(shim.status().message(),
              HasSubstr("rank 1 of 3, wanted rank 1 of 2"));
}

TEST(TotalsTest, CountsRealAndPadded) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t tokens : {3u, 8u, 0xFFFFFFFFu}) {
    columns.add_tokens(tokens);
    columns.add_label_tokens(tokens / 2);
    columns.add_images(tokens == 8 ? 2 : 0);
    columns.add_clips(tokens == 8 ? 1 : 2);
  }
  for (const uint32_t frames : {10, 20, 30, 40, 50}) {
    columns.add_clip_frames(frames);
    columns.add_clip_rows(frames + 2);
  }
  for (const uint32_t side : {2, 4}) {
    columns.add_grid_h(side);
    columns.add_grid_w(6);
  }
  auto* module = columns.add_modules();
  module->set_module(v1::MODULE_VISION);
  for (const uint32_t owner : {1, 0, 1}) module->add_owner(owner);

  const PackedTotals all = SumTotals(columns, {4});
  EXPECT_EQ(all.samples, 3);
  EXPECT_EQ(all.tokens, 11 + uint64_t{0xFFFFFFFF});
  EXPECT_EQ(all.tokens_squared, 9 + 64 + uint64_t{0xFFFFFFFF} * 0xFFFFFFFF);
  EXPECT_EQ(all.patches, 12 + 24);
  EXPECT_EQ(all.images, 2);
  EXPECT_EQ(all.clips, 5);
  EXPECT_EQ(all.frames, 150);

  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  const PackedTotals first = SumTotals(columns, {5}, role);
  EXPECT_EQ(first.samples, 1);
  EXPECT_EQ(first.tokens, 8);
  EXPECT_EQ(first.padded_tokens, 10);
  EXPECT_EQ(first.padded_tokens_squared, 100);
  EXPECT_EQ(first.label_tokens, 4);
  EXPECT_EQ(first.patches, 36);
  EXPECT_EQ(first.clips, 1);
  EXPECT_EQ(first.frames, 30);
  role.set_module(v1::MODULE_LANGUAGE);
  EXPECT_EQ(SumTotals(columns, {5}, role), PackedTotals());
}

// A pair is one sample, and its squares and its padding are of two sequences.
TEST(TotalsTest, CountsTheSequencesOfPairs) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t tokens : {10, 7}) {
    columns.add_tokens(tokens);
    columns.add_label_tokens(1);
    columns.add_images(0);
  }
  columns.add_first_tokens(3);
  columns.add_first_tokens(0);
  const PackedTotals totals = SumTotals(columns, {4});
  EXPECT_EQ(totals.samples, 2);
  EXPECT_EQ(totals.tokens, 17);
  EXPECT_EQ(totals.tokens_squared, 3 * 3 + 7 * 7 + 7 * 7);
  EXPECT_EQ(totals.padded_tokens, 4 + 8 + 8);
  EXPECT_EQ(totals.padded_tokens_squared, 4 * 4 + 8 * 8 + 8 * 8);
  EXPECT_EQ(RowLength(columns, {4, true, 0}), 8u);
  EXPECT_EQ(SumTotals(columns, {4, true, 0}).padded_tokens, 3 * 8);
}

// Rows are as long as the longest sample of all ranks, also on a rank that does
// not own it.
TEST(TotalsTest, CountsThePaddingOfRows) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t tokens : {3, 8, 5}) {
    columns.add_tokens(tokens);
    columns.add_label_tokens(1);
    columns.add_images(0);
  }
  auto* module = columns.add_modules();
  module->set_module(v1::MODULE_LANGUAGE);
  for (const uint32_t owner : {1, 0, 1}) module->add_owner(owner);
  v1::Role role;
  role.set_module(v1::MODULE_LANGUAGE);
  role.set_dp_rank(1);
  const SamplePadding longest = {3, true, 0};
  EXPECT_EQ(SumTotals(columns, longest).padded_tokens, 3 * 9);
  EXPECT_EQ(SumTotals(columns, longest, role).padded_tokens, 2 * 9);
  EXPECT_EQ(SumTotals(columns, longest, role).padded_tokens_squared, 2 * 81);
  EXPECT_EQ(SumTotals(columns, longest, role).tokens, 8);
  const SamplePadding fixed = {3, true, 30};
  EXPECT_EQ(SumTotals(columns, fixed, role).padded_tokens, 2 * 30);
}

v1::MicroBatchSchedule Tokens(std::initializer_list<uint32_t> tokens) {
  v1::MicroBatchSchedule columns;
  for (const uint32_t each : tokens) columns.add_tokens(each);
  return columns;
}

TEST(RowLengthTest, IsTheLongestSamplesOfAllRanks) {
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {1, true, 0}), 9);
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {4, true, 0}), 12);
  EXPECT_EQ(RowLength(Tokens({3, 12, 4}), {4, true, 0}), 12);
  EXPECT_EQ(RowLength(Tokens({0xFFFFFFFF}), {8, true, 0}),
            uint64_t{0x100000000});
}

TEST(RowLengthTest, MayBeFixed) {
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {4, true, 64}), 64);
}

TEST(RowLengthTest, IsZeroForPackedBatches) {
  EXPECT_EQ(RowLength(Tokens({3, 9, 4}), {4, false, 64}), 0);
}

}  // namespace
}  // namespace ballast
