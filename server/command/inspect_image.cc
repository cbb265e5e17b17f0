#include "server/command/inspect_image.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "proto/image/model_resampling.h"
#include "server/command/inspect_family.h"
#include "server/config/config_loader.h"
#include "server/config/image_family_config.h"
#include "server/config/model_images.h"
#include "server/config/model_profile.h"
#include "server/config/profiles.h"
#include "server/corpus/file.h"
#include "server/corpus/limits.h"
#include "server/image/image.h"
#include "server/image/resample_name.h"
#include "server/image_plan/image_family.h"

namespace ballast {
namespace {

struct Options {
  std::string profile;
  std::string config;
  uint64_t min_pixels = 0;  // 0: the profile's
  uint64_t max_pixels = 0;
  std::string resample;  // empty: the configuration's, or pillow12
  bool exif_orientation = false;
  bool text = false;
  std::vector<std::string> files;
};

// The --model that is the family of --config.
constexpr char kOwn[] = "own";

v1::Model::Resample ResampleOf(const std::string& name) {
  if (name == "fast") return v1::Model::RESAMPLE_FAST;
  if (name == "pillow13") return v1::Model::RESAMPLE_PILLOW13;
  if (name == "torchvision") return v1::Model::RESAMPLE_TORCHVISION;
  return v1::Model::RESAMPLE_PILLOW12;
}

// The model of --config or --model, with what the other options change.
absl::StatusOr<v1::Model> CompleteModel(const Options& options) {
  if ((options.profile == kOwn) == options.config.empty()) {
    return absl::InvalidArgumentError(
        "--config goes with --model own: give both or neither");
  }
  v1::Model model;
  if (options.profile == kOwn) {
    BALLAST_ASSIGN_OR_RETURN(const LoadedConfig loaded,
                             LoadConfig(options.config));
    model = loaded.config.model();
    if (!model.has_image_family()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.config,
                       ": model.image_family is missing; "
                       "wanted the family of --model own"));
    }
  } else {
    model.set_profile(options.profile);
  }
  if (model.resample() == v1::Model::RESAMPLE_UNSPECIFIED ||
      !options.resample.empty()) {
    model.set_resample(ResampleOf(options.resample));
  }
  if (options.min_pixels != 0) model.set_min_pixels(options.min_pixels);
  if (options.max_pixels != 0) model.set_max_pixels(options.max_pixels);
  if (options.exif_orientation) model.set_exif_orientation(true);
  if (model.has_image_family()) return model;
  // Pixels before normalising: an encoder, too, has all that is needed.
  if (const v1::ModelProfile* profile = FindProfile(options.profile);
      profile != nullptr && !profile->has_token_ids()) {
    *model.mutable_image_family() = profile->images();
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

absl::StatusOr<ImagePlanner> PlannerOf(const v1::Model& model,
                                       const Options& options) {
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
  std::vector<std::string> names = ProfileNames();
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
absl::Status Inspect(const v1::Model& model, const std::string& bytes,
                     ImageDecoder& decoder, nlohmann::ordered_json& object) {
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image, decoder.Decode(bytes));
  BALLAST_ASSIGN_OR_RETURN(const ImageGrid grid,
                           ResizedGrid(image.height, image.width, model));
  const uint64_t pixels = uint64_t{grid.height} * grid.width;
  if (pixels > kMaxImagePixels) {
    return absl::InvalidArgumentError(
        absl::StrCat("would be resized to ", grid.width, "x", grid.height,
                     " pixels; at most ", kMaxImagePixels, " are made"));
  }
  std::vector<uint8_t> resized(pixels * 3);
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
  object["image_tokens"] = ImageTokens(grid, model);
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
  size_t failed = 0;
  for (const std::string& file : files) {
    nlohmann::ordered_json object = {{"file", file}};
    const absl::StatusOr<std::string> bytes = ReadImageFile(file);
    const absl::Status status =
        bytes.ok() ? inspect(*bytes, object) : bytes.status();
    if (!status.ok()) {
      ++failed;
      object["error"] = std::string(status.message());
    }
    // A file's name may be any bytes; JSON allows only UTF-8.
    out << object.dump(-1, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace)
        << std::endl;
    if (!out) return absl::UnavailableError("cannot write to standard output");
  }
  if (failed == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(failed, " of ", files.size(),
                   " files failed; see `error` in their lines"));
}

}  // namespace

absl::Status InspectImages(const v1::Model& model,
                           absl::Span<const std::string> files,
                           std::ostream& out) {
  ImageDecoder decoder(ImageOptionsOf(model));
  return InspectEach(
      [&](const std::string& bytes, nlohmann::ordered_json& object) {
        return Inspect(model, bytes, decoder, object);
      },
      files, out);
}

absl::Status InspectFamilyImages(const ImagePlanner& planner,
                                 ResampleLibrary library, bool exif_orientation,
                                 bool with_text,
                                 absl::Span<const std::string> files,
                                 std::ostream& out) {
  ImageOptions options;
  options.apply_exif_orientation = exif_orientation;
  ImageDecoder decoder(options);
  return InspectEach(
      [&](const std::string& bytes, nlohmann::ordered_json& object) {
        return InspectFamily(planner, library, with_text, bytes, decoder,
                             object);
      },
      files, out);
}

void AddInspectImage(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
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
        if (model.has_image_family()) {
          BALLAST_ASSIGN_OR_RETURN(const ImagePlanner planner,
                                   PlannerOf(model, *options));
          return InspectFamilyImages(planner, LibraryOf(model.resample()),
                                     model.exif_orientation(), options->text,
                                     options->files, std::cout);
        }
        return InspectImages(model, options->files, std::cout);
      });
  command
      ->AddText("--model", &options->profile,
                "a model of docs/families.md, or `own`")
      .OneOf(AllModelNames())
      .Required()
      .TypeName("MODEL");
  command
      ->AddText("--config", &options->config,
                "the configuration whose model.image_family is --model own; "
                "its `resample` and `exif_orientation` hold, too")
      .TypeName("FILE");
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

}  // namespace ballast
