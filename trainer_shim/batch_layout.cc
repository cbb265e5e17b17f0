#include "trainer_shim/batch_layout.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

absl::StatusOr<std::shared_ptr<const FieldTable>> MakeFieldTable(
    const v1::Job& job) {
  using Field = v1::Source::Field;
  if (job.fields_size() > static_cast<int>(kMaxFields)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job: ", job.fields_size(), " fields, wanted at most ", kMaxFields));
  }
  auto table = std::make_shared<FieldTable>();
  const std::vector<FieldPlace> places =
      PlaceFields(job.fields(), &table->counts);
  std::set<std::string> names;
  for (int i = 0; i < job.fields_size(); ++i) {
    const v1::Job::Field& field = job.fields(i);
    const bool is_known =
        (field.type() == Field::TYPE_FLOAT32 ||
         field.type() == Field::TYPE_INT32) &&
        (field.per() == Field::PER_SAMPLE || field.per() == Field::PER_TURN ||
         field.per() == Field::PER_TOKEN);
    if (!is_known || field.name().empty() ||
        !names.insert(field.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job: field ", i, " \"", field.name(), "\" has type ", field.type(),
          " and per ", field.per(),
          ", wanted a unique name and values that this release knows; is the "
          "server newer?"));
    }
    table->fields.push_back({absl::StrCat("fields.", field.name()),
                             field.type() == Field::TYPE_FLOAT32
                                 ? ElementType::kFloat32
                                 : ElementType::kInt32,
                             places[i], field.per() == Field::PER_TURN});
    if (field.name() == kWeightField && places[i].per_token) {
      table->weight_row = static_cast<int>(places[i].number);
    }
  }
  return std::shared_ptr<const FieldTable>(std::move(table));
}

TensorTable GetFieldRows(const FieldTable& fields) {
  TensorTable rows;
  for (const FieldTable::Field& field : fields.fields) {
    TensorRow& row = rows.emplace_back();
    row.name = field.tensor;
    row.type = field.type;
    row.field = &BatchFields::positions;
    row.memory = Memory::kPacked;
    if (field.place.per_token) {
      row.shape = "[1, L]";
      row.join = Join::kTokens;
      row.contents = field.per_turn
                         ? "of sources[].fields, for the token's turn; 0 in "
                           "padding"
                         : "of sources[].fields; 0 in padding";
      row.value = [](const BatchInfo& info) { return GetTokens(info); };
    } else {
      row.shape = "[n]";
      row.join = Join::kSequences;
      row.contents = "of sources[].fields";
      row.value = [](const BatchInfo& info) -> std::optional<TensorValue> {
        if (info.text.cu_seqlens.empty()) return std::nullopt;
        return TensorValue{{info.sequences()}};
      };
    }
  }
  return rows;
}

namespace {

// Far above any model. These limits keep sums of sizes within 64 bits.
constexpr uint64_t kMaxAlign = 1 << 20;
constexpr uint64_t kMaxRowLength = uint64_t{1} << 30;

// The clips of the plan's samples in packing order, then the dummy clip.
absl::StatusOr<ClipLayout> LayOutClips(absl::Span<const ImageRecord> records,
                                       v1::Module module, const JobShape& shape,
                                       bool dummy) {
  ClipLayout clips;
  clips.listed = true;
  if (module == v1::MODULE_OTHER)
    clips.tensor = std::string(ModuleName(module));
  clips.width = shape.block.clip_width;
  clips.cu_rows.push_back(0);
  int64_t rows = 0;
  const auto add = [&](uint32_t of_clip, uint32_t frames) {
    rows += of_clip;
    clips.frames.push_back(frames);
    clips.cu_rows.push_back(static_cast<int32_t>(rows));
  };
  for (const ImageRecord& record : records) add(record.grid_h, record.grid_t);
  if (dummy) add(shape.dummy_rows, shape.dummy_rows);
  if (rows > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: the clips of the packed shard have ", rows,
                     " rows of features, wanted fewer than 2^31"));
  }
  return clips;
}

// An EmbeddingPlan counts merge * merge patches as one row.
absl::Status CheckSplit(const v1::Model& model) {
  if (HasPlaceholdersByPatches(model)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "job: balance.placement is split with images of ",
      model.image_family().name(),
      ", whose embeddings are not counted by patches: set it to paired"));
}

}  // namespace

ModuleLayout GetLayout(const v1::Job::ModuleSize& module) {
  return {std::max(module.tp(), 1u), std::max(module.pp(), 1u),
          std::max(module.cp(), 1u)};
}

absl::StatusOr<JobShape> GetShape(const v1::Job& job, const v1::Role& role,
                                  const TrainerPlace& place) {
  const v1::Job::ModuleSize* module = nullptr;
  const v1::Job::ModuleSize* trained = nullptr;
  for (const v1::Job::ModuleSize& entry : job.modules()) {
    if (entry.module() == role.module()) module = &entry;
    if (IsLanguage(entry.module())) trained = &entry;
  }
  if (module == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "module ", ModuleName(role.module()), " is not configured"));
  }
  if (role.dp_rank() >= module->dp()) {
    return absl::InvalidArgumentError(absl::StrCat(
        ModuleName(role.module()), " has ", module->dp(),
        " data-parallel ranks; rank ", role.dp_rank(), " was asked for"));
  }
  const ModuleLayout layout = GetLayout(*module);
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckPlace(place, layout), ModuleName(role.module())));
  const v1::Model& model = job.model();
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("align", module->align(), 1, kMaxAlign));
  if (trained == nullptr) trained = module;
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("align of language", trained->align(), 1, kMaxAlign));
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("row_length", job.row_length(), 0, kMaxRowLength));
  if (job.row_length() % trained->align() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("job: row_length is ", job.row_length(),
                     ", wanted a multiple of align, ", trained->align()));
  }
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("length of model.mean", model.mean_size(), 3, 3));
  BALLAST_RETURN_IF_ERROR(
      CheckJobRange("length of model.std", model.std_size(), 3, 3));
  if (model.position_axes() != 1 && model.position_axes() != 3 &&
      model.position_axes() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("job: model.position_axes is ", model.position_axes(),
                     ", wanted 1, 3 or 4"));
  }

  JobShape shape;
  BALLAST_ASSIGN_OR_RETURN(shape.delivery, GetRule(job, role));
  shape.dp = module->dp();
  shape.align = module->align();
  shape.padding = {trained->align(), job.padded(), job.row_length()};
  shape.block = GetGeometry(job);
  BALLAST_ASSIGN_OR_RETURN(shape.crops, GetCropForm(job));
  if (GetMedia(role.module()) == Media::kRows) {
    BALLAST_RETURN_IF_ERROR(CheckJobRange(
        "clip_shape.width", job.clip_shape().width(), 1, kMaxClipWidth));
    BALLAST_RETURN_IF_ERROR(CheckJobRange("clip_shape.dummy_rows",
                                          job.clip_shape().dummy_rows(), 1,
                                          kMaxClipRows));
    shape.dummy_rows = job.clip_shape().dummy_rows();
  }
  shape.merge = model.merge();
  shape.encoded_images = model.decode() == v1::Model::DECODE_DEVICE;
  shape.resampling = GetResampling(model);
  for (int c = 0; c < 3; ++c) {
    if (!(model.std(c) > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job: model.std[", c, "] is ", model.std(c), ", wanted above 0"));
    }
    shape.mean[c] = model.mean(c);
    shape.std[c] = model.std(c);
  }
  shape.pad_id = model.token_ids().pad();
  shape.place = place;
  shape.layout = layout;
  shape.fields = GetFields(role.module(), place, layout);
  BALLAST_ASSIGN_OR_RETURN(shape.field_table, MakeFieldTable(job));
  shape.tensors = MakeTensorTable(GetFieldRows(*shape.field_table));
  shape.split_placement = job.placement() == v1::Balance::PLACEMENT_SPLIT;
  if (shape.split_placement) BALLAST_RETURN_IF_ERROR(CheckSplit(model));
  for (const v1::Job::ModuleSize& size : job.modules()) {
    if (IsEncoder(size.module())) shape.encoders.push_back(size.module());
  }
  shape.colocated = job.colocated();
  // Media are not sliced: every context rank of an encoder has all of them.
  if (IsLanguage(role.module())) {
    shape.context = {layout.cp, place.cp_rank};
  }
  if (IsLanguage(role.module()) && job.dynamic_cp() > 1) {
    shape.dynamic_cp = job.dynamic_cp();
    if (layout.cp != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("job: dynamic_cp is ", shape.dynamic_cp,
                       " with language cp ", layout.cp, ", wanted cp 1"));
    }
  }
  BALLAST_RETURN_IF_ERROR(CheckContextAlign(
      std::max(shape.context.size, shape.dynamic_cp), shape.align));
  return shape;
}

StepInfo GetStepInfo(v1::StepSchedule schedule, const SamplePadding& padding) {
  StepInfo step;
  for (const v1::MicroBatchSchedule& each : schedule.micro_batches()) {
    step.totals += SumTotals(each, padding);
  }
  step.schedule = std::make_shared<v1::StepSchedule>(std::move(schedule));
  return step;
}

// The rank's part of the samples that it trains on.
static absl::StatusOr<ContextSlice> FindContext(
    const ExchangePlan& plan, const v1::MicroBatchSchedule& micro_batch,
    const v1::Role& role, const JobShape& shape) {
  if (shape.dynamic_cp == 1 || plan.owned.empty()) return shape.context;
  const v1::ModuleSchedule& module = *FindModule(micro_batch, role.module());
  // All samples of the rank are in one pack (CheckColumns).
  const uint32_t sample = plan.owned[0].index;
  const ContextSlice context = {PackRanks(module, sample),
                                role.dp_rank() - module.owner(sample)};
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckContextAlign(context.size, shape.align),
               absl::StrCat("schedule: the pack of position ",
                            micro_batch.position(sample))));
  return context;
}

absl::StatusOr<BatchLayout> LayOutBatch(
    const ExchangePlan& plan, const v1::MicroBatchSchedule& micro_batch,
    const v1::Role& role, const JobShape& shape) {
  BatchLayout layout;
  const bool is_first =
      shape.fields.pixels || shape.fields.features || shape.fields.input_ids;
  for (const v1::Module encoder : shape.encoders) {
    if (!shape.split_placement || !is_first) break;
    // Another encoder's ranks know nothing of this one's rows.
    if (IsEncoder(role.module()) && role.module() != encoder) continue;
    EmbeddingRank rank;
    rank.rank = role.dp_rank();
    rank.encodes = shape.colocated || role.module() == encoder;
    rank.has_text = shape.colocated || IsLanguage(role.module());
    rank.encoder = encoder;
    BALLAST_RETURN_IF_ERROR(PlanEmbeddings(micro_batch, rank, shape.merge,
                                           &layout.embeddings.emplace_back()));
  }
  if (IsLanguage(role.module())) {
    BALLAST_ASSIGN_OR_RETURN(layout.context,
                             FindContext(plan, micro_batch, role, shape));
    std::vector<uint32_t> lengths;
    const bool has_pairs = !micro_batch.first_tokens().empty();
    for (const OwnedSample& owned : plan.owned) {
      const SampleRecord& sample = owned.expected;
      ForEachSequence(sample.tokens, sample.first_tokens,
                      [&](uint32_t tokens) { lengths.push_back(tokens); });
      if (!has_pairs) continue;
      if (sample.first_tokens != 0) layout.pair.push_back(0);
      layout.pair.push_back(sample.first_tokens != 0 ? 1 : -1);
    }
    BALLAST_ASSIGN_OR_RETURN(
        layout.text,
        shape.padding.rows
            ? LayOutRows(lengths, RowLength(micro_batch, shape.padding))
            : LayOutText(lengths, shape.align));
    return layout;
  }
  const auto& dummies = FindModule(micro_batch, role.module())->dummy_rank();
  layout.dummy_image = std::find(dummies.begin(), dummies.end(),
                                 role.dp_rank()) != dummies.end();
  if (GetMedia(role.module()) == Media::kRows) {
    BALLAST_ASSIGN_OR_RETURN(
        layout.clips,
        LayOutClips(plan.images, role.module(), shape, layout.dummy_image));
    return layout;
  }
  for (const ImageRecord& record : plan.images) {
    if (!IsFrame(record)) layout.images.push_back(record);
  }
  if (layout.dummy_image) layout.images.push_back(GetDummyImage(shape.crops));
  BALLAST_ASSIGN_OR_RETURN(layout.vision, LayOutVision(layout.images));
  BALLAST_ASSIGN_OR_RETURN(layout.crops,
                           LayOutCrops(layout.images, shape.crops));
  BALLAST_ASSIGN_OR_RETURN(layout.videos,
                           LayOutVideos(plan.images, shape.crops));
  return layout;
}

void FillBatchInfo(const StepInfo& step, uint32_t micro_batch,
                   const v1::Role& role, const JobShape& shape,
                   PixelType pixel_type, const ExchangePlan& plan,
                   const BatchLayout& layout, bool has_block, BatchInfo* info) {
  const v1::StepSchedule& schedule = *step.schedule;
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  info->step = schedule.step();
  info->micro_batch = micro_batch;
  info->num_micro_batches = schedule.micro_batches_size();
  info->role = role;
  info->place = shape.place;
  info->fields = shape.fields;
  info->context = shape.dynamic_cp > 1 ? layout.context : shape.context;
  info->pack_share.clear();
  if (shape.dynamic_cp > 1) {
    info->pack_share = {layout.context.size, layout.context.rank};
  }
  info->whole_pack = shape.dynamic_cp > 1 && !shape.encoders.empty();
  info->samples.resize(plan.owned.size());
  for (size_t i = 0; i < plan.owned.size(); ++i) {
    const SampleRecord& record = plan.owned[i].expected;
    PackedSample& sample = info->samples[i];
    sample.position = record.position;
    sample.source = record.source;
    sample.ordinal = record.ordinal;
    sample.name.clear();
    absl::StrAppend(&sample.name, schedule.sources(record.source), ":",
                    record.ordinal);
    sample.placeholder = false;
  }
  info->position_axes = shape.block.position_axes;
  info->float_positions = shape.block.float_positions;
  info->max_seqlen = layout.text.max_seqlen;
  info->text = layout.text;
  info->pair = layout.pair;
  info->field_table = shape.field_table;
  info->padded = shape.padding.rows && shape.fields.positions;
  info->pixel_type = pixel_type;
  info->vision = layout.vision;
  info->crops = layout.crops;
  info->videos = layout.videos;
  info->vision_max_seqlen =
      std::max(layout.vision.max_seqlen, layout.videos.vision.max_seqlen);
  info->dummy_image = layout.dummy_image;
  info->clips = layout.clips;
  info->embeddings = layout.embeddings;
  info->totals = SumTotals(columns, shape.padding, role);
  info->micro_batch_totals = SumTotals(columns, shape.padding);
  info->step_totals = step.totals;
  info->bytes_read = has_block ? plan.block.bytes() : 0;
  info->bytes_moved = has_block ? plan.bytes_sent() : 0;
  info->schedule = step.schedule;
  info->table = shape.tensors;
  LayOutTensors(info);
}

}  // namespace ballast
