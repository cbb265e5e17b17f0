#include "server/command/init/own_files.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/table.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keys as the file has them

constexpr size_t kMaxText = 60;  // of a value, in characters
constexpr size_t kMaxItems = 3;  // of a list
constexpr size_t kMaxLines = 40;

// The same with long texts and lists cut.
OrderedJson Shorten(const OrderedJson& json) {
  if (json.is_string()) {
    const std::string text = json.get<std::string>();
    size_t end = kMaxText;
    if (text.size() <= end) return json;
    // Not within a character.
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + "...";
  }
  OrderedJson made =
      json.is_array() ? OrderedJson::array() : OrderedJson::object();
  if (json.is_array()) {
    for (size_t i = 0; i < json.size() && i < kMaxItems; ++i) {
      made.push_back(Shorten(json[i]));
    }
    if (json.size() > kMaxItems) {
      made.push_back(absl::StrCat("... ", json.size(), " in all"));
    }
    return made;
  }
  if (!json.is_object()) return json;
  for (const auto& [key, value] : json.items()) made[key] = Shorten(value);
  return made;
}

std::string AsComment(absl::string_view text) {
  std::string lines;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (++number > kMaxLines) {
      absl::StrAppend(&lines, "#   ...\n");
      break;
    }
    absl::StrAppend(&lines, "#   ", OneLine(line), "\n");
  }
  return lines;
}

std::optional<uint64_t> Number(const Json& json, const char* key,
                               uint64_t most) {
  const auto found = json.find(key);
  if (found == json.end()) return std::nullopt;
  const Json& number =
      found->is_array() && !found->empty() ? (*found)[0] : *found;
  if (!number.is_number_unsigned() || number.get<uint64_t>() == 0 ||
      number.get<uint64_t>() > most) {
    return std::nullopt;
  }
  return number.get<uint64_t>();
}

// The first of these keys that the processor or the tower's section has.
std::optional<uint64_t> FirstNumber(const Json& config, const Json& processor,
                                    std::initializer_list<const char*> keys,
                                    uint64_t most) {
  const Json tower = config.value("vision_config", Json::object());
  for (const Json* json : {&processor, &tower, &config}) {
    if (!json->is_object()) continue;
    for (const char* key : keys) {
      if (const auto number = Number(*json, key, most)) return number;
    }
  }
  return std::nullopt;
}

std::string Three(const Json& processor, const char* key) {
  const auto found = processor.find(key);
  return found != processor.end() && found->is_array() && found->size() == 3
             ? found->dump()
             : "";
}

}  // namespace

std::string ShowRecord(const RecipeRecord& record) {
  if (record.kind != RecipeRecord::Kind::kMembers) {
    const OrderedJson json = OrderedJson::parse(record.text, nullptr, false);
    if (json.is_discarded()) return "";
    return Shorten(json).dump(2, ' ', false,
                              OrderedJson::error_handler_t::replace);
  }
  std::string members = absl::StrCat("key ", record.text);
  for (const RecipeRecord::Part& part : record.parts) {
    absl::StrAppend(&members, "\nmembers[\"", part.name, "\"]: ", part.size,
                    " bytes");
    if (!part.bytes.has_value()) continue;
    const OrderedJson json = OrderedJson::parse(*part.bytes, nullptr, false);
    if (json.is_discarded()) continue;
    absl::StrAppend(&members, ", ",
                    Shorten(json).dump(-1, ' ', false,
                                       OrderedJson::error_handler_t::replace));
  }
  return members;
}

OwnFile MakeRecipe(const std::string& source, const std::string& path,
                   bool is_tar, absl::string_view record) {
  OwnFile file;
  file.name = absl::StrCat(source, "_recipe.py");
  file.text = absl::StrCat(
      "# How a record of ", OneLine(path),
      " becomes a sample; written by `ballast-server init`, yours to\n"
      "# complete. docs/recipes.md has all that a record and a sample have. "
      "Try it on one record with\n"
      "#   ballast-server inspect recipe --config CONFIG --source ",
      source, "\n#\n# The first record", is_tar ? "" : ", record.json()", ":\n",
      AsComment(record),
      "import ballast.recipe as recipe\n"
      "\n"
      "\n"
      "@recipe.cook\n"
      "def cook(record):\n",
      is_tar ? "    # record.json(): the member KEY.json; "
               "record.members[\"cls\"].text(): another one.\n"
             : "    row = record.json()\n",
      "    # `return None` leaves the record out.\n"
      "    raise NotImplementedError(\"say what of a record is the question, "
      "the answer and the images\")\n"
      "    return recipe.Sample(\n"
      "        messages=[\n"
      "            {\"role\": \"user\", \"content\": \"<image>\" + ",
      is_tar ? "record.json()[\"QUESTION\"]" : "row[\"QUESTION\"]",
      "},\n"
      "            {\"role\": \"assistant\", \"content\": ",
      is_tar ? "record.json()[\"ANSWER\"]" : "row[\"ANSWER\"]",
      "},\n"
      "        ],\n"
      "        # A member of the tar, a path below media_root, or bytes in the "
      "row.\n"
      "        images=[record.media(\"",
      is_tar ? "jpg" : "IMAGE",
      "\")],\n"
      "    )\n");
  return file;
}

OwnModel MakeModel(const std::string& type, const Json& config,
                   const Json& processor) {
  OwnModel model;
  std::string name;
  for (const char c : type) name += absl::ascii_isalnum(c) ? c : '_';
  const auto number = [&](const char* what,
                          std::initializer_list<const char*> keys,
                          uint64_t otherwise, uint64_t most) {
    const auto found = FirstNumber(config, processor, keys, most);
    if (!found.has_value()) {
      model.unsure.push_back(absl::StrCat(
          what, " in ", name, ".textproto: no file says it, took ", otherwise));
    }
    return found.value_or(otherwise);
  };
  const uint64_t patch = number("patch", {"patch_size"}, 14, 1024);
  const uint64_t merge = number(
      "merge", {"merge_size", "spatial_merge_size", "scale_factor"}, 1, 64);
  const uint64_t side = std::max(
      number("the side of a crop", {"image_size"}, 448, 65536), patch * merge);
  const auto three = [&](const char* key, const char* what) {
    const std::string found = Three(processor, key);
    if (found.empty()) {
      model.unsure.push_back(
          absl::StrCat(what, " in ", name,
                       ".textproto: preprocessor_config.json "
                       "has no ",
                       key));
    }
    return found.empty() ? std::string("[0.5, 0.5, 0.5]") : found;
  };
  model.unsure.push_back(
      absl::StrCat("the marks in ", name,
                   ".textproto: wanted the text of an image as the "
                   "model's processor writes it"));
  model.profile.name = name + ".textproto";
  model.profile.text = absl::StrCat(
      "# The numbers of ", type,
      "; written by `ballast-server init`, yours to check. docs/families.md "
      "has each.\n"
      "images {\n"
      "  # The recipe plans the crops: the rule says that they may have any "
      "sides.\n"
      "  rule: RULE_SMART_RESIZE\n"
      "  min_pixels: ",
      patch * patch * merge * merge, "\n  max_pixels: ", side * side,
      "\n"
      "  # The batch holds crops [N, 3, H, W]; or LAYOUT_MERGE_ORDER, "
      "LAYOUT_RASTER_ORDER: patches.\n"
      "  layout: LAYOUT_CROPS\n"
      "  patch: ",
      patch, "\n  merge: ", merge,
      "\n"
      "  marks {\n"
      "    # The token that the model replaces by an image's features, and the "
      "texts around all of them.\n"
      "    placeholder: \"<image>\"\n"
      "    # before: \"<img>\"\n"
      "    # after: \"</img>\"\n"
      "  }\n"
      "}\n"
      "mean: ",
      three("image_mean", "mean"), "\nstd: ", three("image_std", "std"),
      "\n"
      "# The token that ends a document, where it is not <|endoftext|>:\n"
      "# end_of_text: \"</s>\"\n"
      "# Of `chat_template: checkpoint` nothing is needed here.\n"
      "chat_template: \"chatml\"\n");
  model.recipe.name = name + "_recipe.py";
  model.recipe.text = absl::StrCat(
      "# The images of ", type,
      "; written by `ballast-server init`, yours to complete "
      "(docs/unknown_model.md).\n"
      "# See what it makes with\n"
      "#   ballast-server inspect recipe --config CONFIG --images --sample 0 "
      "--crops FOLDER\n"
      "import ballast.recipe as recipe\n"
      "\n"
      "SIDE = ",
      side, "\nTOKEN = ", patch * merge,
      "  # pixels of a token on a side\n"
      "\n"
      "\n"
      "@recipe.image_plan\n"
      "def plan(facts):\n"
      "    # One crop, as the processor of a fixed size makes it. Give those "
      "of "
      "your model's processor: their\n"
      "    # sides, recipe.Crop(height, width, box) for a part of the image, "
      "and tokens= and text= where\n"
      "    # they are not one placeholder for each merged patch.\n"
      "    return recipe.ImagePlan([(SIDE // TOKEN * TOKEN, SIDE // TOKEN * "
      "TOKEN)])\n"
      "\n"
      "\n"
      "# The server resizes the image to each crop (model.resample). Where the "
      "processor does something else,\n"
      "# make the crops here:\n"
      "#\n"
      "# @recipe.pixels\n"
      "# def pixels(rgb, plan, rng):\n"
      "#     return [resize(rgb, crop.height, crop.width) for crop in "
      "plan.crops]\n");
  return model;
}

}  // namespace ballast
