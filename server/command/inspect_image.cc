#include "server/command/commands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"
#include "server/config/config_loader.h"
#include "server/files/file.h"
#include "server/media/image/crop_maker.h"
#include "server/media/image/image.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/image_text.h"
#include "server/model/image_family_config.h"
#include "server/model/model_images.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"

namespace ballast {

namespace {

struct InspectImageOptions {
  std::string profile;
  std::string rules;
  std::string transparency;  // empty: the model's
  std::string config;
  uint64_t min_pixels = 0;  // 0: the profile's
  uint64_t max_pixels = 0;
  std::string resample;  // empty: the configuration's, or pillow12
  bool exif_orientation = false;
  bool text = false;
  uint32_t images = 1;
  std::vector<std::string> files;
};

// The --model that is the model of --config.
constexpr char kOwn[] = "own";

v1::Model::Resample GetResample(const std::string& name) {
  if (name == "fast") return v1::Model::RESAMPLE_FAST;
  if (name == "pillow13") return v1::Model::RESAMPLE_PILLOW13;
  if (name == "torchvision") return v1::Model::RESAMPLE_TORCHVISION;
  return v1::Model::RESAMPLE_PILLOW12;
}

v1::Model::Transparency GetTransparency(const std::string& name) {
  if (name == "white") return v1::Model::TRANSPARENCY_WHITE;
  if (name == "white_rgba") return v1::Model::TRANSPARENCY_WHITE_RGBA;
  return v1::Model::TRANSPARENCY_DROP;
}

// The model of --config or --model, with what the other options change.
absl::StatusOr<v1::Model> CompleteModel(const InspectImageOptions& options) {
  if ((options.profile == kOwn) == options.config.empty()) {
    return absl::InvalidArgumentError(
        "--config goes with --model own: give both or neither");
  }
  v1::Model model;
  if (options.profile == kOwn) {
    BALLAST_ASSIGN_OR_RETURN(const LoadedConfig loaded,
                             LoadConfig(options.config));
    model = loaded.config.model();
    if (!model.recipe().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.config,
          ": model.recipe makes its images; wanted `ballast-server inspect "
          "recipe --config ",
          options.config, " --images`"));
    }
  } else {
    model.set_profile(UnderRules(options.profile, options.rules));
  }
  if (model.resample() == v1::Model::RESAMPLE_UNSPECIFIED ||
      !options.resample.empty()) {
    model.set_resample(GetResample(options.resample));
  }
  if (options.min_pixels != 0) model.set_min_pixels(options.min_pixels);
  if (options.max_pixels != 0) model.set_max_pixels(options.max_pixels);
  if (options.exif_orientation) model.set_exif_orientation(true);
  if (!options.transparency.empty()) {
    model.set_transparency(GetTransparency(options.transparency));
  }
  if (!HasImageKeys(model)) return model;
  // Pixels before normalising: an encoder, too, has all that is needed.
  if (const v1::ModelProfile* profile = FindProfile(model.profile());
      profile != nullptr && !profile->has_token_ids()) {
    *model.mutable_image_family() = profile->images();
    if (model.transparency() == v1::Model::TRANSPARENCY_UNSPECIFIED) {
      model.set_transparency(profile->transparency());
    }
    return model;
  }
  BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
  if (model.min_pixels() > model.max_pixels()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min-pixels is ", model.min_pixels(), ", above --max-pixels ",
        model.max_pixels(), "; lower the one or raise the other"));
  }
  return model;
}

absl::StatusOr<ImagePlanner> GetPlanner(const v1::Model& model,
                                        const InspectImageOptions& options) {
  ImageFamily family = FamilyOfConfig(model.image_family());
  if (model.resample() == v1::Model::RESAMPLE_FAST) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resample is fast; wanted pillow12, pillow13 or torchvision for ",
        family.name));
  }
  if (options.min_pixels != 0 || options.max_pixels != 0) {
    if (family.max_pixels == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(family.name, " has no bounds of pixels; omit ",
                       "--min-pixels and --max-pixels"));
    }
    if (options.min_pixels != 0) family.min_pixels = options.min_pixels;
    if (options.max_pixels != 0) family.max_pixels = options.max_pixels;
  }
  return ImagePlanner::Create(std::move(family));
}

std::vector<std::string> AllModelNames() {
  std::vector<std::string> names = ProfileNames(TakesImages);
  names.push_back(kOwn);
  return names;
}

absl::StatusOr<std::string> ReadImageFile(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
  const uint64_t size = file.stamp().size;
  if (size > kMaxSampleBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "file of ", size, " bytes; at most ", kMaxSampleBytes, " are read"));
  }
  return file.ReadAt(0, size);
}

// Adds the keys that follow `file`.
absl::Status Inspect(const ModelImages& images, const std::string& bytes,
                     ImageDecoder& decoder, nlohmann::ordered_json& object) {
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image, decoder.Decode(bytes));
  const std::vector<ImageSize> sides = {{image.width, image.height}};
  std::vector<ImageGrid> grids;
  BALLAST_ASSIGN_OR_RETURN(const ModelImages::Share share,
                           images.Add(sides, 0, &grids));
  const ImageGrid& grid = grids[0];
  std::vector<uint8_t> resized(uint64_t{3} * grid.height * grid.width);
  // Decodes the file a second time, in one pass as a server does.
  ImageHeader size = {};
  size.width = image.width;
  size.height = image.height;
  BALLAST_RETURN_IF_ERROR(decoder.DecodeResized(
      bytes, size, grid.width, grid.height, absl::MakeSpan(resized)));
  object["width"] = image.width;
  object["height"] = image.height;
  object["resized_h"] = grid.height;
  object["resized_w"] = grid.width;
  object["grid_thw"] = {1, grid.grid_h, grid.grid_w};
  object["image_tokens"] = share.placeholders;
  object["rgb_sha256"] = Sha256Hex(image.pixels);
  object["resized_sha256"] = Sha256Hex(resized);
  return absl::OkStatus();
}

// Adds the keys of one file, whose bytes are given.
using InspectBytes = std::function<absl::Status(
    const std::string& bytes, nlohmann::ordered_json& object)>;

absl::Status InspectEach(const InspectBytes& inspect,
                         absl::Span<const std::string> files,
                         std::ostream& out) {
  return InspectFiles(
      files, "files",
      [&](const std::string& file,
          nlohmann::ordered_json* object) -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const std::string bytes, ReadImageFile(file));
        return inspect(bytes, *object);
      },
      out);
}

}  // namespace

absl::Status InspectImages(const v1::Model& model,
                           absl::Span<const std::string> files,
                           std::ostream& out) {
  BALLAST_ASSIGN_OR_RETURN(const ModelImages images,
                           ModelImages::Create(model));
  ImageDecoder decoder(GetImageOptions(model));
  return InspectEach(
      [&](const std::string& bytes, nlohmann::ordered_json& object) {
        return Inspect(images, bytes, decoder, object);
      },
      files, out);
}

absl::Status InspectFamilyImages(const ImagePlanner& planner,
                                 const FamilyInspection& how,
                                 absl::Span<const std::string> files,
                                 std::ostream& out) {
  ImageDecoder decoder(how.image);
  return InspectEach(
      [&](const std::string& bytes, nlohmann::ordered_json& object) {
        return InspectFamily(planner, how, bytes, decoder, object);
      },
      files, out);
}

void AddRules(Command* command, std::string* rules) {
  command
      ->AddText("--rules", rules,
                "whose rules, where the model's authors and transformers do "
                "not agree: `authors` or `transformers`")
      .OneOf({"authors", "transformers"})
      .ShowDefault("authors");
}

std::string UnderRules(const std::string& model, const std::string& rules) {
  return NameUnderRules(model, rules == "transformers"
                                   ? v1::Model::RULES_TRANSFORMERS
                                   : v1::Model::RULES_AUTHORS);
}

void AddInspectImage(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<InspectImageOptions>();
  Command* command = line->AddCommand(
      inspect, "image",
      R"(Prints what a model sees of image files (JPEG, PNG, WebP).
One JSON object a file, in order: its size, its size after resizing, its grid of
patches, its tokens, and SHA-256 of the RGB pixels before and after resizing; or
`error`. For a model other than Qwen's, SHA-256 of each crop, or of the patches
as the model's image processor arranges them. Exits with status 1 if any file
failed.)",
      R"(  ballast-server inspect image --model qwen2_5_vl photo.jpg scan.png
  ballast-server inspect image --model qwen3_vl --max-pixels 1048576 *.webp
  ballast-server inspect image --model internvl3 --resample torchvision *.jpg
  ballast-server inspect image --model own --config ballast.yaml photo.jpg)",
      [options]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const v1::Model model,
                                 CompleteModel(*options));
        if (HasImageKeys(model)) {
          return InspectImages(model, options->files, std::cout);
        }
        BALLAST_ASSIGN_OR_RETURN(const ImagePlanner planner,
                                 GetPlanner(model, *options));
        return InspectFamilyImages(
            planner, {GetImageOptions(model), options->images, options->text},
            options->files, std::cout);
      });
  command
      ->AddText("--model", &options->profile,
                "a model of docs/families.md, or `own`")
      .OneOf(AllModelNames())
      .Required()
      .TypeName("MODEL");
  command
      ->AddText("--config", &options->config,
                "the configuration whose model is --model own; its `resample` "
                "and `exif_orientation` hold, too")
      .TypeName("FILE");
  AddRules(command, &options->rules);
  command->AddWholeNumber("--images", &options->images,
                          "images of the sample of each image, on which some "
                          "models' tiles depend (default: 1)",
                          1, 1 << 20);
  command
      ->AddText("--transparency", &options->transparency,
                "colours of transparent pixels, as model.transparency")
      .OneOf({"drop", "white", "white_rgba"})
      .ShowDefault("the model's");
  command->AddWholeNumber("--min-pixels", &options->min_pixels,
                          "fewest pixels after resizing (default: the model's)",
                          1);
  command->AddWholeNumber("--max-pixels", &options->max_pixels,
                          "most pixels after resizing (default: the model's)",
                          1);
  command
      ->AddText("--resample", &options->resample,
                "whose pixels: `pillow12` (or `exact`), `pillow13`, "
                "`torchvision`; `fast` approximates them")
      .OneOf({"pillow12", "pillow13", "torchvision", "exact", "fast"})
      .ShowDefault("pillow12, or the configuration's");
  command->AddFlag("--exif-orientation", &options->exif_orientation,
                   "apply the EXIF orientation of images");
  command->AddFlag("--text", &options->text,
                   "also print the text in place of the image: texts and "
                   "lengths of runs of placeholders");
  command->AddTexts("FILE", &options->files, "image files").Required();
}

namespace {

// Adds the text in place of the image, the first of its sample.
void AddText(const ImageFamily& family, const ImagePlan& plan,
             nlohmann::ordered_json& object) {
  nlohmann::ordered_json text = nlohmann::ordered_json::array();
  for (const ImageTextPiece& piece : ImageText(family, plan, /*image=*/0)) {
    if (piece.placeholders != 0) {
      text.push_back(piece.placeholders);
    } else {
      text.push_back(piece.text);
    }
  }
  object["text"] = std::move(text);
}

}  // namespace

absl::Status InspectFamily(const ImagePlanner& planner,
                           const FamilyInspection& how, absl::string_view bytes,
                           ImageDecoder& decoder,
                           nlohmann::ordered_json& object) {
  const ResampleLibrary library = how.image.resampling.library;
  const ImageFamily& family = planner.family();
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image, decoder.Decode(bytes));
  BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan,
                           planner.Plan(image.height, image.width, how.images));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<RgbImage> crops,
      MakeCrops(image, plan, {.filter = family.filter, .library = library}));
  object["width"] = image.width;
  object["height"] = image.height;
  const bool is_patches = family.layout != PatchLayout::kCrops;
  if (is_patches && crops.size() == 1 &&
      family.layout != PatchLayout::kStrips) {
    object["grid_thw"] = {1, crops[0].height / family.patch,
                          crops[0].width / family.patch};
  }
  if (plan.tile_rows != 0) {
    object["tile_grid"] = {plan.tile_rows, plan.tile_columns};
  }
  object["image_tokens"] = plan.tokens;
  if (how.with_text) AddText(family, plan, object);
  object["resample"] = ResampleName(library);
  object["rgb_sha256"] = Sha256Hex(image.pixels);
  if (is_patches) {
    const PatchBytes patches = ArrangePatches(crops, family);
    object["patches"] = {{"shape", patches.shape},
                         {"sha256", Sha256Hex(patches.values)}};
    return absl::OkStatus();
  }
  nlohmann::ordered_json hashes = nlohmann::ordered_json::array();
  for (const RgbImage& crop : crops) {
    hashes.push_back({crop.height, crop.width, Sha256Hex(crop.pixels)});
  }
  object["crops"] = std::move(hashes);
  return absl::OkStatus();
}

namespace {

constexpr uint32_t kChannels = 3;

// The pixel in row `y` and column `x`.
const uint8_t* PixelAt(const RgbImage& image, uint32_t y, uint32_t x) {
  return image.pixels.data() + (size_t{y} * image.width + x) * kChannels;
}

// Appends `size` bytes to `out`, and returns where they begin.
uint8_t* Append(size_t size, std::vector<uint8_t>& out) {
  out.resize(out.size() + size);
  return out.data() + out.size() - size;
}

// The values of the patch in row `row` and column `column` of a crop: channel
// by channel, each `frames` times.
void AddPlanes(const RgbImage& crop, uint32_t row, uint32_t column,
               uint32_t patch, uint32_t frames, std::vector<uint8_t>& out) {
  const size_t plane = size_t{patch} * patch;
  uint8_t* to = Append(kChannels * frames * plane, out);
  for (uint32_t c = 0; c < kChannels; ++c) {
    uint8_t* const first = to;
    for (uint32_t y = 0; y < patch; ++y) {
      const uint8_t* from = PixelAt(crop, row * patch + y, column * patch) + c;
      for (uint32_t x = 0; x < patch; ++x) *to++ = from[x * kChannels];
    }
    for (uint32_t frame = 1; frame < frames; ++frame) {
      to = std::copy_n(first, plane, to);
    }
  }
}

// Likewise pixel by pixel.
void AddPixels(const RgbImage& crop, uint32_t row, uint32_t column,
               uint32_t patch, std::vector<uint8_t>& out) {
  const size_t line = size_t{patch} * kChannels;
  uint8_t* to = Append(patch * line, out);
  for (uint32_t y = 0; y < patch; ++y) {
    to = std::copy_n(PixelAt(crop, row * patch + y, column * patch), line, to);
  }
}

PatchBytes MergeOrder(const RgbImage& crop, const ImageFamily& family) {
  const uint32_t patch = family.patch;
  const uint32_t merge = family.merge;
  const uint32_t rows = crop.height / patch;
  const uint32_t columns = crop.width / patch;
  PatchBytes bytes;
  for (uint32_t top = 0; top < rows; top += merge) {
    for (uint32_t left = 0; left < columns; left += merge) {
      for (uint32_t i = 0; i < merge * merge; ++i) {
        AddPlanes(crop, top + i / merge, left + i % merge, patch,
                  family.temporal_patch, bytes.values);
      }
    }
  }
  bytes.shape = {uint64_t{rows} * columns,
                 uint64_t{kChannels} * family.temporal_patch * patch * patch};
  return bytes;
}

PatchBytes RasterOrder(const RgbImage& crop, const ImageFamily& family) {
  const uint64_t patch = family.patch;
  const uint32_t rows = crop.height / family.patch;
  const uint32_t columns = crop.width / family.patch;
  const bool by_pixel = family.layout == PatchLayout::kRasterPixels ||
                        family.layout == PatchLayout::kRasterBatch;
  PatchBytes bytes;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      if (by_pixel) {
        AddPixels(crop, row, column, family.patch, bytes.values);
      } else {
        AddPlanes(crop, row, column, family.patch, family.temporal_patch,
                  bytes.values);
      }
    }
  }
  const uint64_t patches = uint64_t{rows} * columns;
  const uint64_t size = kChannels * family.temporal_patch * patch * patch;
  switch (family.layout) {
    case PatchLayout::kKimi:
      bytes.shape = {patches, kChannels, patch, patch};
      return bytes;
    case PatchLayout::kRasterPixels:
      bytes.shape = {std::max<uint64_t>(patches, family.max_patches), size};
      break;
    case PatchLayout::kRasterBatch:
      bytes.shape = {1, std::max<uint64_t>(patches, family.max_patches), size};
      break;
    default:
      bytes.shape = {patches, size};
      return bytes;
  }
  bytes.values.resize(bytes.shape[bytes.shape.size() - 2] * size);
  return bytes;
}

// Each channel and row of patches' pixels runs through all crops.
PatchBytes Strips(absl::Span<const RgbImage> crops, uint32_t patch) {
  PatchBytes bytes;
  for (uint32_t c = 0; c < kChannels; ++c) {
    for (uint32_t y = 0; y < patch; ++y) {
      for (const RgbImage& crop : crops) {
        for (uint32_t top = y; top < crop.height; top += patch) {
          const uint8_t* from = PixelAt(crop, top, 0) + c;
          uint8_t* to = Append(crop.width, bytes.values);
          for (uint32_t x = 0; x < crop.width; ++x) to[x] = from[x * kChannels];
        }
      }
    }
  }
  bytes.shape = {1, kChannels, patch,
                 bytes.values.size() / (uint64_t{kChannels} * patch)};
  return bytes;
}

}  // namespace

PatchBytes ArrangePatches(absl::Span<const RgbImage> crops,
                          const ImageFamily& family) {
  switch (family.layout) {
    case PatchLayout::kMergeOrder:
      return MergeOrder(crops[0], family);
    case PatchLayout::kStrips:
      return Strips(crops, family.patch);
    default:
      return RasterOrder(crops[0], family);
  }
}

}  // namespace ballast
