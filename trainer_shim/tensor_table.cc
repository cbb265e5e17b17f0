#include "trainer_shim/tensor_table.h"

#include <algorithm>
#include <utility>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/aligned_buffer.h"
#include "common/mutex.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

constexpr uint64_t kTensorAlignment = 256;

using Value = std::optional<TensorValue>;
using E = ElementType;

// A list of values, in rows of `width`; 0: not in rows.
template <typename T>
Value List(const std::vector<T>& values, int64_t width = 0) {
  const int64_t count = values.size();
  if (width == 0) return TensorValue{{count}, values.data()};
  return TensorValue{{count / width, width}, values.data()};
}

template <typename T>
Value ListIf(bool has, const std::vector<T>& values, int64_t width = 0) {
  return has ? List(values, width) : std::nullopt;
}

bool HasImages(const BatchInfo& info) {
  return !info.vision.cu_seqlens.empty();
}

Value Pixels(const BatchInfo& info) {
  if (!HasImages(info)) return std::nullopt;
  const CropLayout& crops = info.crops;
  const PatchShape& shape = crops.shape;
  const int64_t values = shape.row();
  if (crops.tiles) {
    return TensorValue{{crops.rows(), 3, shape.tile_h, shape.tile_w}};
  }
  if (shape.padded_rows != 0) {
    return TensorValue{{crops.num_crops(), shape.padded_rows, values}};
  }
  return TensorValue{{crops.rows(), values}};
}

Value PixelsOfVideos(const BatchInfo& info) {
  if (!info.videos.listed) return std::nullopt;
  const PatchShape& shape = info.crops.shape;
  const int64_t rows = info.videos.rows();
  if (info.crops.tiles) {
    return TensorValue{{rows, 3, shape.tile_h, shape.tile_w}};
  }
  return TensorValue{{rows, static_cast<int64_t>(shape.row())}};
}

// Of the tokens of a pack whole, whatever part of it the rank has.
Value PackTokens(const BatchInfo& info, int64_t axes = 1) {
  if (!info.whole_pack || info.text.cu_seqlens.empty()) return std::nullopt;
  const int64_t tokens = info.text.padded_tokens();
  if (axes > 1) return TensorValue{{axes, 1, tokens}};
  return TensorValue{{1, tokens}};
}

bool HasPaddedCrops(const BatchInfo& info) {
  return info.crops.lists_crops && info.crops.shape.padded_rows != 0;
}

// Whether the batch has media that travel as rows, in the tensor of that name.
bool HasRows(const BatchInfo& info, absl::string_view tensor) {
  return info.clips.listed && info.clips.tensor == tensor;
}

// Every row is here, or in AddOtherRows and AddPlans. For a row of kPacked,
// host/packed_batch.cc and cuda/device_stage.cc also have code that fills it.
TensorTable BuiltInRows() {
  constexpr auto kIds = &BatchFields::input_ids;
  constexpr auto kLabels = &BatchFields::labels;
  constexpr auto kText = &BatchFields::positions;
  constexpr auto kImages = &BatchFields::pixels;
  constexpr auto kAudio = &BatchFields::features;
  return {
      {"input_ids", E::kInt64, "[1, L]", kIds, Join::kTokens, Memory::kPacked,
       "with image placeholders; the pad id in padding",
       [](const BatchInfo& info) { return GetTokens(info); }},
      {"labels", E::kInt64, "[1, L]", kLabels, Join::kTokens, Memory::kPacked,
       "already shifted: the id of the next token; -100 where unsupervised and "
       "in padding",
       [](const BatchInfo& info) { return GetTokens(info); }},
      {"loss_mask", E::kFloat32, "[1, L]", kLabels, Join::kTokens,
       Memory::kPacked,
       "1 where labels is not -100, else 0; with a field `weight` the weight "
       "of "
       "the label's message in place of 1",
       [](const BatchInfo& info) { return GetTokens(info); }},
      {"position_ids", E::kInt64, "[3, 1, L] (MRoPE), [4, 1, L] or [1, L]",
       kText, Join::kTokens, Memory::kPacked,
       "start again at each sample; 0 in padding; 4 axes with HunyuanVL",
       [](const BatchInfo& info) {
         return info.float_positions ? std::nullopt
                                     : GetTokens(info, info.position_axes);
       }},
      {"position_ids", E::kFloat32, "[3, 1, L]", kText, Join::kTokens,
       Memory::kPacked,
       "of Qwen3-Omni, in place of int64: videos have fractional positions",
       [](const BatchInfo& info) {
         return info.float_positions ? GetTokens(info, info.position_axes)
                                     : std::nullopt;
       }},
      {"attention_mask", E::kBool, "[n, L / n]", kText, Join::kTokens,
       Memory::kPacked,
       "true for tokens of a sample, false in padding; padded batches alone",
       [](const BatchInfo& info) {
         return info.padded ? GetTokens(info) : std::nullopt;
       }},
      {"cu_seqlens", E::kInt32, "[n+1]", kText, Join::kSums, Memory::kListed,
       "**how long** each sample is: sums of real lengths; not in padded "
       "batches",
       [](const BatchInfo& info) {
         return ListIf(!info.padded && !info.text.cu_seqlens.empty(),
                       info.text.cu_seqlens);
       }},
      {"cu_seqlens_padded", E::kInt32, "[n+1]", kText, Join::kSums,
       Memory::kListed,
       "**where** each sample begins: sums of padded lengths; not in padded "
       "batches",
       [](const BatchInfo& info) {
         return ListIf(!info.padded && !info.text.cu_seqlens.empty(),
                       info.text.cu_seqlens_padded);
       }},
      {"pack_share_host", E::kInt64, "[2]", kText, Join::kRanks, Memory::kHost,
       "the ranks that share the pack, and this rank's number among them: its "
       "tokens are that zig-zag part of every sample; only with "
       "`packing.dynamic_cp`",
       [](const BatchInfo& info) {
         return ListIf(!info.pack_share.empty(), info.pack_share);
       }},
      {"pack_input_ids", E::kInt64, "[1, T]", kIds, Join::kTokens,
       Memory::kPacked,
       "input_ids of the whole pack, of which the rank has a part; only with "
       "`packing.dynamic_cp` and an encoder",
       [](const BatchInfo& info) { return PackTokens(info); }},
      {"pack_position_ids", E::kInt64, "[3, 1, T], [4, 1, T] or [1, T]", kText,
       Join::kTokens, Memory::kPacked,
       "position_ids of the whole pack; only with `packing.dynamic_cp` and an "
       "encoder",
       [](const BatchInfo& info) {
         return info.float_positions ? std::nullopt
                                     : PackTokens(info, info.position_axes);
       }},
      {"pack_position_ids", E::kFloat32, "[3, 1, T]", kText, Join::kTokens,
       Memory::kPacked, "of Qwen3-Omni, in place of int64",
       [](const BatchInfo& info) {
         return info.float_positions ? PackTokens(info, info.position_axes)
                                     : std::nullopt;
       }},
      {"pair", E::kInt32, "[n]", kText, Join::kSequences, Memory::kListed,
       "of each sequence: 0 the chosen answer of a preference pair, 1 the "
       "rejected one, which follows it, -1 of no pair; only where the "
       "micro-batch has a pair, on any rank",
       [](const BatchInfo& info) {
         return ListIf(!info.pair.empty(), info.pair);
       }},
      {"pixel_values", E::kPixels, "[P, V]; other forms below", kImages,
       Join::kItems, Memory::kPacked, "normalised patches", Pixels},
      {"image_grid_thw", E::kInt64, "[C, 3]", kImages, Join::kItems,
       Memory::kListed, "(t, h, w) of each crop, in patches",
       [](const BatchInfo& info) {
         return ListIf(HasImages(info), info.vision.image_grid_thw, 3);
       }},
      {"vision_cu_seqlens", E::kInt32, "[frames+1]", kImages, Join::kSums,
       Memory::kListed, "sums of h·w, t times for each crop",
       [](const BatchInfo& info) {
         return ListIf(HasImages(info), info.vision.cu_seqlens);
       }},
      {"imgs_sizes", E::kInt64, "[C, 2]", kImages, Join::kItems,
       Memory::kListed,
       "height and width of each crop, in pixels; families of crops in every "
       "form but `merge_order`",
       [](const BatchInfo& info) {
         return ListIf(info.crops.lists_crops && info.crops.lists_sizes,
                       info.crops.imgs_sizes, 2);
       }},
      {"crops_per_image", E::kInt64, "[images]", kImages, Join::kItems,
       Memory::kListed,
       "families of crops; a dummy image is the last, with one crop",
       [](const BatchInfo& info) {
         return ListIf(info.crops.lists_crops, info.crops.crops_per_image);
       }},
      {"image_sizes", E::kInt64, "[images, 2]", kImages, Join::kItems,
       Memory::kListed,
       "height and width of the image before resizing; families of rule "
       "`pinpoints`",
       [](const BatchInfo& info) {
         return ListIf(info.crops.lists_crops && info.crops.lists_images,
                       info.crops.image_sizes, 2);
       }},
      {"spatial_shapes", E::kInt64, "[C, 2]", kImages, Join::kItems,
       Memory::kListed,
       "height and width of each crop, in patches; form `padded`",
       [](const BatchInfo& info) {
         return ListIf(HasPaddedCrops(info), info.crops.spatial_shapes, 2);
       }},
      {"pixel_attention_mask", E::kBool, "[C, max_patches]", kImages,
       Join::kPaddedItems, Memory::kListedOnce,
       "true for patches; form `padded`",
       [](const BatchInfo& info) {
         return ListIf(HasPaddedCrops(info), info.crops.pixel_attention_mask,
                       info.crops.shape.padded_rows);
       }},
      {"pixel_values_videos", E::kPixels, "[Q, V]; tiles as pixel_values",
       kImages, Join::kItems, Memory::kPacked,
       "normalised patches; models that take videos", PixelsOfVideos},
      {"video_grid_thw", E::kInt64, "[D, 3]", kImages, Join::kItems,
       Memory::kListed,
       "(t, h, w) of each video; t counts temporal patches; models that take "
       "videos",
       [](const BatchInfo& info) {
         return ListIf(info.videos.listed, info.videos.vision.image_grid_thw,
                       3);
       }},
      {"second_per_grid_ts", E::kFloat32, "[D]", kImages, Join::kItems,
       Memory::kListed,
       "seconds from one temporal patch to the next; models that take videos",
       [](const BatchInfo& info) {
         return ListIf(info.videos.listed, info.videos.second_per_grid_ts);
       }},
      {"video_cu_seqlens", E::kInt32, "[Σt + 1]", kImages, Join::kSums,
       Memory::kListed,
       "sums of h·w, t times for each video; models that take videos",
       [](const BatchInfo& info) {
         return ListIf(info.videos.listed, info.videos.vision.cu_seqlens);
       }},
      {"input_features", E::kFloat32, "[F, M]", kAudio, Join::kItems,
       Memory::kPacked,
       "features of audio, clip after clip: F rows of M values (mel bins); a "
       "dummy clip is the last, all zeros",
       [](const BatchInfo& info) -> Value {
         if (!HasRows(info, "input_features")) return std::nullopt;
         return TensorValue{{info.clips.cu_rows.back(), info.clips.width}};
       }},
      {"audio_feature_lengths", E::kInt64, "[clips]", kAudio, Join::kItems,
       Memory::kListed,
       "rows of each clip that count; the encoder sees the others beyond the "
       "clip's end",
       [](const BatchInfo& info) {
         return ListIf(HasRows(info, "input_features"), info.clips.frames);
       }},
      {"audio_cu_rows", E::kInt32, "[clips+1]", kAudio, Join::kSums,
       Memory::kListed, "where each clip begins: sums of rows",
       [](const BatchInfo& info) {
         return ListIf(HasRows(info, "input_features"), info.clips.cu_rows);
       }},
  };
}

// The rows of MODULE_OTHER, as those of audio, if this process has its kind.
void AddOtherRows(TensorTable* table) {
  if (GetMedia(v1::MODULE_OTHER) == Media::kNone) return;
  constexpr auto kRows = &BatchFields::features;
  const std::string name(ModuleName(v1::MODULE_OTHER));
  table->push_back(
      {name, E::kFloat32, "[F, M]", kRows, Join::kItems, Memory::kPacked,
       "rows, medium after medium; a dummy is the last, all zeros",
       [name](const BatchInfo& info) -> Value {
         if (!HasRows(info, name)) return std::nullopt;
         return TensorValue{{info.clips.cu_rows.back(), info.clips.width}};
       }});
  table->push_back({absl::StrCat(name, "_lengths"), E::kInt64, "[media]", kRows,
                    Join::kItems, Memory::kListed,
                    "rows of each medium that count",
                    [name](const BatchInfo& info) {
                      return ListIf(HasRows(info, name), info.clips.frames);
                    }});
  table->push_back({absl::StrCat(name, "_cu_rows"), E::kInt32, "[media+1]",
                    kRows, Join::kSums, Memory::kListed,
                    "where each medium begins: sums of rows",
                    [name](const BatchInfo& info) {
                      return ListIf(HasRows(info, name), info.clips.cu_rows);
                    }});
}

// A list of the encoder's plan; none if it is of ranks that send only, or
// receive only, and this is the other part.
std::function<Value(const BatchInfo&)> ListOfPlan(
    v1::Module encoder, std::vector<int64_t> EmbeddingPlan::*side,
    std::vector<int64_t> EmbeddingPlan::*list) {
  return [=](const BatchInfo& info) {
    const EmbeddingPlan& plan = FindPlan(info.embeddings, encoder);
    return ListIf(!(plan.*side).empty(), plan.*list);
  };
}

// The plan of each encoder's embeddings.
void AddPlans(TensorTable* table) {
  using Plan = EmbeddingPlan;
  for (const ModuleKind& kind : ModuleKinds()) {
    const v1::Module encoder = kind.module;
    if (!IsEncoder(encoder)) continue;
    table->push_back(
        {PlanTensorName(encoder, "send_host"), E::kInt64, "[dp]", nullptr,
         Join::kRanks, Memory::kHost,
         absl::StrCat("of ", kind.name,
                      ": rows that this rank sends to each language rank"),
         ListOfPlan(encoder, &Plan::send, &Plan::send)});
    table->push_back(
        {PlanTensorName(encoder, "send_order"), E::kInt64, "[S]", nullptr,
         Join::kItems, Memory::kListed,
         absl::StrCat("of ", kind.name,
                      ": the encoder's row that is sent as each of S: a "
                      "pack's rows go to all of its ranks; only with "
                      "`packing.dynamic_cp`"),
         [=](const BatchInfo& info) {
           const EmbeddingPlan& plan = FindPlan(info.embeddings, encoder);
           return ListIf(plan.shared && !plan.send.empty(), plan.send_order);
         }});
    table->push_back(
        {PlanTensorName(encoder, "receive_host"), E::kInt64, "[dp]", nullptr,
         Join::kRanks, Memory::kHost,
         absl::StrCat("of ", kind.name, ": rows that come from each rank"),
         ListOfPlan(encoder, &Plan::receive, &Plan::receive)});
    table->push_back(
        {PlanTensorName(encoder, "order"), E::kInt64, "[E]", nullptr,
         Join::kItems, Memory::kListed,
         absl::StrCat("of ", kind.name,
                      ": the received row of each placeholder in the text; "
                      "rows are received rank by rank"),
         ListOfPlan(encoder, &Plan::receive, &Plan::order)});
  }
}

struct AddedRows {
  Mutex mutex;
  TensorTable rows ABSL_GUARDED_BY(mutex);
};
// Never destroyed: rows are added before main, and batches outlive it.
AddedRows& Added() {
  static auto* const added = new AddedRows;
  return *added;
}

}  // namespace

Value GetTokens(const BatchInfo& info, int64_t axes) {
  if (info.text.cu_seqlens.empty()) return std::nullopt;
  const int64_t rows = info.padded ? info.sequences() : 1;
  const int64_t length = info.text.padded_tokens() / info.context.size / rows;
  if (axes > 1) return TensorValue{{axes, rows, length}};
  return TensorValue{{rows, length}};
}

std::shared_ptr<const TensorTable> MakeTensorTable(const TensorTable& more) {
  auto table = std::make_shared<TensorTable>(BuiltInRows());
  AddOtherRows(table.get());
  AddPlans(table.get());
  {
    AddedRows& added = Added();
    MutexLock lock(&added.mutex);
    table->insert(table->end(), added.rows.begin(), added.rows.end());
  }
  table->insert(table->end(), more.begin(), more.end());
  for (TensorRow& row : *table) row.host_name = row.name + "_host";
  return table;
}

bool AddTensorRow(TensorRow row) {
  AddedRows& added = Added();
  MutexLock lock(&added.mutex);
  added.rows.push_back(std::move(row));
  return true;
}

void LayOutTensors(BatchInfo* info) {
  if (info->table == nullptr) info->table = MakeTensorTable();
  info->tensors.clear();
  info->packed_bytes = 0;
  info->list_bytes = 0;
  const ElementType pixels =
      info->pixel_type == PixelType::kBfloat16 ? E::kBfloat16 : E::kFloat32;
  for (const TensorRow& row : *info->table) {
    if (row.field != nullptr && !(info->fields.*row.field)) continue;
    const Value value = row.value(*info);
    if (!value) continue;
    BatchTensor& tensor = info->tensors.emplace_back();
    tensor.row = &row;
    tensor.type = row.type == E::kPixels ? pixels : row.type;
    tensor.shape = value->shape;
    if (row.memory == Memory::kHost) continue;
    uint64_t& bytes =
        row.memory == Memory::kPacked ? info->packed_bytes : info->list_bytes;
    tensor.offset = bytes;
    bytes = AlignUp(bytes + tensor.bytes(), kTensorAlignment);
  }
}

const BatchTensor* FindTensor(const BatchInfo& info, absl::string_view name) {
  for (const BatchTensor& tensor : info.tensors) {
    if (tensor.row->name == name) return &tensor;
  }
  return nullptr;
}

void ListTensors(const BatchInfo& info, const TensorMemory& memory,
                 std::vector<TensorView>* views) {
  views->clear();
  for (const BatchTensor& tensor : info.tensors) {
    const TensorRow& row = *tensor.row;
    TensorView view = {row.name.c_str(), tensor.type, nullptr, memory.device,
                       tensor.shape};
    if (row.memory == Memory::kPacked) {
      view.data = memory.packed + tensor.offset;
      views->push_back(view);
      continue;
    }
    const void* const host = row.value(info)->data;
    if (row.memory != Memory::kHost) {
      view.data = memory.lists == nullptr ? host : memory.lists + tensor.offset;
      views->push_back(view);
    }
    if (row.memory == Memory::kListedOnce) continue;
    if (row.memory == Memory::kListed) view.name = row.host_name.c_str();
    view.data = host;
    view.device = kHostMemory;
    views->push_back(view);
  }
}

std::string ComputeDigest(const BatchInfo& info,
                          const std::vector<TensorView>& views) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(
      XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const void* data, size_t bytes) {
    if (bytes > 0) XXH3_128bits_update(state.get(), data, bytes);
  };
  for (const TensorView& view : views) {
    const absl::string_view name = view.name;
    const int64_t type = static_cast<int64_t>(view.type);
    add(name.data(), name.size() + 1);  // with the 0
    add(&type, sizeof(type));
    add(view.shape.sides.data(), sizeof(view.shape.sides));
    add(view.data, view.bytes());
  }
  const int64_t rest[] = {info.max_seqlen, info.vision_max_seqlen,
                          info.dummy_image};
  add(rest, sizeof(rest));
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace ballast
