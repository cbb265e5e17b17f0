#include "server/command/init/decide.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "server/command/init/model_choice.h"
#include "server/config/config_loader.h"
#include "server/data/form/forms.h"
#include "server/data/parquet/unpack.h"

namespace ballast {

namespace {

// A whole configuration, but for the section `storage`.
constexpr char kAnyJob[] =
    "sources: [{name: any, format: webdataset, path: any.tar}]\n"
    "batch: {global: 1, micro: 1, max_tokens: 64}\n"
    "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n";

}  // namespace

std::string StoreSettingsText(const SeenStore& store) {
  const std::pair<const char*, const std::string&> settings[] = {
      {"account", store.account},
      {"endpoint", store.endpoint},
      {"region", store.region},
      {"credentials", store.credentials},
      {"ca", store.ca}};
  std::vector<std::string> given;
  for (const auto& [key, value] : settings) {
    if (value.empty()) continue;
    // A JSON string is a YAML string.
    given.push_back(absl::StrCat(
        key, ": ",
        nlohmann::json(value).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace)));
  }
  return given.empty() ? ""
                       : absl::StrCat(store.section, ": {",
                                      absl::StrJoin(given, ", "), "}");
}

absl::StatusOr<v1::Storage> StoreSettings(const SeenStore& store,
                                          const std::string& config_folder) {
  const std::string section = StoreSettingsText(store);
  absl::StatusOr<LoadedConfig> config = ParseConfig(
      section.empty() ? kAnyJob
                      : absl::StrCat(kAnyJob, "storage: {", section, "}"),
      absl::StrCat("the options --", store.section, "-…"), config_folder);
  if (!config.ok()) return config.status();
  return std::move(*config->config.mutable_storage());
}

namespace {

// Samples of a micro-batch, and micro-batches of a step, for each rank.
constexpr uint64_t kSamplesOfRank = 4;
constexpr uint64_t kMicroBatches = 2;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
// Column of the comments.
constexpr size_t kCommentAt = 44;

std::string Quoted(const std::string& text) {
  // A JSON string is a YAML string.
  return nlohmann::json(text).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace);
}

const char* GetName(SeenFiles::Format format) {
  switch (format) {
    case SeenFiles::Format::kWebDataset:
      return "webdataset";
    case SeenFiles::Format::kJsonl:
      return "jsonl";
    case SeenFiles::Format::kParquet:
      return "parquet";
    case SeenFiles::Format::kEnergon:
      return "energon";
    case SeenFiles::Format::kMegatron:
      return "megatron";
    case SeenFiles::Format::kCsv:
      return "csv";
  }
  return "";
}

// The words of a path: runs of letters.
std::vector<std::string> Words(const std::string& path) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : absl::AsciiStrToLower(path) + ".") {
    if (absl::ascii_isalpha(c)) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

// The split that a path speaks of, as FineVision/validation-*.parquet does.
std::string GetSplit(const std::string& path) {
  for (const std::string& word : Words(path)) {
    if (word == "val" || word == "valid" || word == "validation" ||
        word == "dev" || word == "eval") {
      return "valid";
    }
    if (word == "test") return "test";
  }
  return "train";
}

std::string GetSplit(const SeenFiles& files) {
  return files.split.empty() ? GetSplit(files.path) : files.split;
}

// A name of letters, digits, `_` and `-` that no other source has.
std::string SourceName(const std::string& path, std::set<std::string>* taken) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  std::string base = parts.back().substr(0, parts.back().rfind('.'));
  // docs.jsonl.zst
  if (IsPacked(parts.back())) base = base.substr(0, base.rfind('.'));
  // train-00000-of-00009, as Hugging Face numbers its files.
  const size_t of = base.rfind("-of-");
  if (of != std::string::npos &&
      base.find_first_not_of("0123456789[]-*", of + 4) == std::string::npos) {
    base.resize(of);
  }
  std::string name;
  // The glob of a number says nothing.
  for (const char c : absl::StrCat(absl::StripSuffix(base, "-[0-9]*"))) {
    if (absl::ascii_isalpha(c) || c == '_' ||
        (absl::ascii_isdigit(c) && name.find('[') == std::string::npos)) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() &&
         (name.back() == '-' || absl::ascii_isdigit(name.back()))) {
    name.pop_back();
  }
  if (name.empty() && parts.size() > 1) {
    for (const char c : parts[parts.size() - 2]) {
      name += absl::ascii_isalnum(c) || c == '_' ? c : '-';
    }
  }
  if (name.empty()) name = "data";
  std::string unique = name;
  for (int i = 2; !taken->insert(unique).second; ++i) {
    unique = absl::StrCat(name, "-", i);
  }
  return unique;
}

class Text {
 public:
  // A line with a comment at the usual column.
  void Line(absl::string_view line, absl::string_view comment = "") {
    absl::StrAppend(&text_, line);
    if (!comment.empty()) {
      const size_t gap =
          line.size() + 2 < kCommentAt ? kCommentAt - line.size() : 2;
      absl::StrAppend(&text_, std::string(gap, ' '), "# ", comment);
    }
    text_ += '\n';
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string Counted(uint64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::string SamplesText(const SeenFiles& files) {
  return absl::StrCat(files.estimated ? "about " : "",
                      Counted(files.samples, "sample"), " in ",
                      Counted(files.files, "file"), ", ",
                      absl::StrFormat("%.1f MB", files.bytes * 1e-6));
}

std::string SizeText(uint64_t bytes) {
  return bytes % kGiB == 0 ? absl::StrCat(bytes / kGiB, "GiB")
                           : absl::StrCat(bytes / kMiB, "MiB");
}

class Decider {
 public:
  explicit Decider(const Seen& seen) : seen_(seen) {}

  absl::StatusOr<Setup> Decide() {
    if (seen_.files.empty()) return NoSource();
    for (const SeenFiles& files : seen_.files) media_.Join(files.media);
    BALLAST_ASSIGN_OR_RETURN(
        model_, ChooseModel(seen_.model, media_.with[MediumKind::kAudio] > 0));
    ChooseOwnTemplate();
    text_.Line(
        absl::StrCat("# A Ballast job over ", seen_.folder,
                     "; written by `ballast-server init`, yours to change."));
    text_.Line(
        "# Every key: docs/configuration.md. Paths are relative to this file.");
    Sources();
    Model();
    Batch();
    Topology();
    Storage();
    Rest();
    Append(model_.found, &setup_.found);
    Append(model_.unsure, &setup_.unsure);
    setup_.files.insert(setup_.files.end(), model_.files.begin(),
                        model_.files.end());
    Others();
    setup_.yaml = text_.Take();
    return std::move(setup_);
  }

 private:
  static void Append(const std::vector<std::string>& from,
                     std::vector<std::string>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  absl::Status NoSource() const {
    std::string message = absl::StrCat(
        seen_.folder,
        ": found nothing that can be a source; wanted WebDataset tars (*.tar), "
        "JSON lines (*.jsonl, *.jsonl.zst), Parquet and Arrow files "
        "(*.parquet, "
        "*.arrow), tables (*.csv), images with a text each (a.jpg, a.txt), "
        "token ids of Megatron (*.bin and *.idx), or a "
        "folder of Energon (.nv-meta), as docs/fits.md describes. Of "
        "anything else make JSON lines: "
        "{\"image\": \"a.jpg\", \"text\": \"A cat\"}");
    for (const SeenOther& other : seen_.others) {
      absl::StrAppend(&message, "\n", other.path, ": ", other.reason);
    }
    return absl::FailedPreconditionError(message);
  }

  // Takes the checkpoint's template where samples need it.
  void ChooseOwnTemplate() {
    for (const SeenFiles& files : seen_.files) {
      if (files.for_own_template == 0) continue;
      const std::string why = absl::StrCat(
          Counted(files.for_own_template, "sample"), " of ", files.looked_at,
          " in ", files.path, ": ", files.first_for_own_template);
      if (seen_.model.own_template.empty() || !seen_.model.has_tokenizer) {
        setup_.unsure.push_back(absl::StrCat(
            "the chat template, which would make bad samples of ", why,
            "; copy tokenizer.json and chat_template.jinja of the checkpoint "
            "into one folder, and set chat_template: checkpoint"));
        continue;
      }
      std::erase_if(model_.lines, [](const ModelChoice::Line& line) {
        return line.key == "chat_template" || line.key == "system_prompt";
      });
      model_.lines.push_back({"chat_template", "checkpoint",
                              "the model's own, since samples need it"});
      setup_.found.push_back(absl::StrCat(
          "chat_template: checkpoint, rendered by jinja2, for ", why));
    }
  }

  void Sources() {
    const bool has_train =
        std::any_of(seen_.files.begin(), seen_.files.end(),
                    [](const SeenFiles& f) { return GetSplit(f) == "train"; });
    text_.Line("sources:");
    for (const SeenFiles& files : seen_.files) {
      // Names do not decide if none of them is one of training data.
      const std::string split =
          has_train || !files.split.empty() ? GetSplit(files) : "train";
      const std::string name =
          SourceName(files.split.empty() || split == "train"
                         ? files.path
                         : absl::StrCat(files.path, "-", split),
                     &names_);
      text_.Line(absl::StrCat("  - name: ", name), SamplesText(files));
      text_.Line(absl::StrCat("    format: ", GetName(files.format)));
      std::string path = files.path;
      if (!files.lines.empty()) {
        setup_.files.push_back({name + "_pairs.jsonl", files.lines});
        path = setup_.files.back().name;
      }
      text_.Line(absl::StrCat("    path: ", Quoted(path)),
                 files.lines.empty() ? ""
                                     : "written here: the images of a folder "
                                       "with the texts beside them");
      if (!files.media_roots.empty()) {
        std::vector<std::string> roots;
        for (const std::string& root : files.media_roots) {
          roots.push_back(Quoted(root));
        }
        const std::string all = absl::StrJoin(roots, ", ");
        text_.Line(absl::StrCat("    media_root: ",
                                roots.size() == 1 ? all : "[" + all + "]"),
                   roots.size() == 1 ? "image paths begin here"
                                     : "image paths begin or lead here");
      }
      for (const std::string& root : files.roots_outside) {
        setup_.unsure.push_back(absl::StrCat(
            "media_root ", root, " of ", name,
            ": paths of records lead there, outside of ", seen_.folder));
      }
      if (files.form.has_value()) WriteForm(name, files);
      if (!files.record.empty()) {
        setup_.files.push_back(MakeRecipe(
            name, files.path, files.format == SeenFiles::Format::kWebDataset,
            files.record));
        const std::string& recipe = setup_.files.back().name;
        text_.Line(absl::StrCat("    recipe: ", recipe),
                   "to be written: it makes samples of records");
        setup_.unsure.push_back(
            absl::StrCat("the records of ", name, ", whose form is not known (",
                         files.first_fault, "): write `cook` in ", recipe));
      }
      if (files.record.empty() && files.pairs > files.looked_at / 2) {
        text_.Line("    pairs: true",
                   absl::StrCat("by ", files.pair_form,
                                ": a sample is two sequences"));
        setup_.unsure.push_back(absl::StrCat(
            "the trainer of ", name, ", whose records are preference pairs (",
            files.pair_form,
            "): one that learns every label learns the rejected answers, too"));
      }
      if (split != "train") {
        text_.Line(absl::StrCat("    split: ", split),
                   files.split.empty() ? "by its name" : "of its split.yaml");
      } else if (seen_.files.size() > 1) {
        text_.Line(absl::StrCat("    weight: ", std::clamp<uint64_t>(
                                                    files.samples, 1, 1000000)),
                   "its samples: each is drawn as often as any other");
        if (files.samples > 1000000) {
          setup_.unsure.push_back(absl::StrCat("the weight of source ", name,
                                               ": it has more than the 1000000 "
                                               "that a weight may be"));
        }
      }
      if (files.crude) {
        text_.Line("    energon: {crude: webdataset}",
                   "samples as tars have them");
      }
      most_text_ = std::max(most_text_, files.most_text);
      setup_.found.push_back(absl::StrCat(name, ": ", GetName(files.format),
                                          " ", files.path, ", ",
                                          SamplesText(files)));
      if (!files.missing.empty()) {
        setup_.unsure.push_back(
            absl::StrCat("whether ", name, " is whole: ", files.missing));
      }
      if (split != "train" && files.split.empty()) {
        setup_.unsure.push_back(absl::StrCat("the split of ", name, ": ", split,
                                             ", because its name says so"));
      }
      if (files.crude) {
        setup_.unsure.push_back(absl::StrCat(
            name,
            ": its cooker is Python, which is not run: samples are taken "
            "as KEY.json or KEY.txt with images next to it"));
      }
      if (files.bad > 0 && files.record.empty()) {
        setup_.unsure.push_back(absl::StrCat(Counted(files.bad, "bad sample"),
                                             " of ", files.looked_at, " in ",
                                             name, ": ", files.first_fault));
      }
    }
  }

  // A line for each key, and what the form makes of the first record.
  void WriteForm(const std::string& name, const SeenFiles& files) {
    const std::pair<const char*, const char*> kKeys[] = {
        {"name", "of forms/: its keys hold where none stands here"},
        {"images", "the images, in order"},
        {"videos", "the videos, in order"},
        {"audios", "the audio, in order"},
        {"messages", "the turns"},
        {"user", "the question"},
        {"assistant", "the answer, which is learnt"},
        {"system", "a text before the turns"},
        {"history", "earlier questions and answers"},
        {"text", "the text, behind the images; it is learnt"},
        {"role_key", "of a turn: who says it"},
        {"content_key", "of a turn: what is said"},
        {"roles", "the words for each role"},
        {"marks", "the words that stand for media"},
        {"ignore", "known, and not wanted"}};
    setup_.found.push_back(absl::StrCat(
        "the form of ", name, ", which explains ", files.explained, " of ",
        Counted(files.looked_at, "record"), " read: ", FormYaml(*files.form)));
    text_.Line("    form:",
               absl::StrCat("explains ", files.explained, " of ",
                            Counted(files.looked_at, "record"), " read"));
    for (const auto& [key, comment] : kKeys) {
      const std::string value = FormValueYaml(*files.form, key);
      if (value.empty()) continue;
      text_.Line(absl::StrCat("      ", key, ": ", value), comment);
    }
    if (!files.example.empty()) {
      text_.Line(absl::StrCat("      # the first record: ", files.example));
      setup_.found.push_back(
          absl::StrCat("the first record of ", name, ": ", files.example));
    }
    if (!files.to_settle.empty()) {
      text_.Line(
          absl::StrCat("      # to be settled, here or by a key that reads it: "
                       "ignore: [",
                       absl::StrJoin(files.to_settle, ", "), "]"));
    }
    if (!files.unread.empty()) {
      text_.Line(absl::StrCat("      # not read: ",
                              absl::StrJoin(files.unread, ", ")));
    }
    if (!files.other_form.empty()) {
      text_.Line(absl::StrCat("      # or, which fits equally: form: ",
                              files.other_form));
      setup_.unsure.push_back(
          absl::StrCat("the form of ", name,
                       ": another one fits equally, and makes other samples: ",
                       files.other_form));
    }
  }

  void Model() {
    text_.Line("model:");
    for (const ModelChoice::Line& line : model_.lines) {
      text_.Line(absl::StrCat("  ", line.key, ": ", line.value), line.comment);
    }
  }

  uint64_t ranks() const { return std::max<uint64_t>(seen_.gpus, 1); }

  void Batch() {
    const uint64_t micro = kSamplesOfRank * ranks();
    // Half again what the samples that were read could take, as a power of two.
    const uint64_t longest =
        media_.most[MediumKind::kImage] * model_.most_image_tokens +
        media_.most[MediumKind::kAudio] * model_.clip_tokens + most_text_ + 64;
    uint64_t tokens = 4096;
    while (tokens < longest + longest / 2 && tokens < (uint64_t{1} << 24)) {
      tokens *= 2;
    }
    text_.Line("batch:");
    text_.Line(absl::StrCat("  global: ", micro * kMicroBatches),
               "samples a step, over all ranks");
    text_.Line(absl::StrCat("  micro: ", micro),
               "samples a micro-batch, over all ranks");
    text_.Line(absl::StrCat("  max_tokens: ", tokens),
               absl::StrCat("of one sample; the longest of those read: ",
                            longest, " or fewer"));
    text_.Line("  on_too_long: skip",
               "`index` counts what it leaves out; or: error, truncate_text");
  }

  void Topology() {
    const std::string dp = absl::StrCat(": {dp: ", ranks(), "}, ");
    std::string encoders;
    const auto takes = [this](MediumKind kind) {
      return (kind == MediumKind::kAudio ? model_.clip_tokens
                                         : model_.most_image_tokens) > 0;
    };
    const bool hears =
        media_.with[MediumKind::kAudio] > 0 && takes(MediumKind::kAudio);
    const uint64_t seen =
        media_.with[MediumKind::kImage] + media_.with[MediumKind::kVideo];
    if (takes(MediumKind::kImage) && (seen > 0 || !hears)) {
      absl::StrAppend(&encoders, "vision", dp);
    }
    if (hears) absl::StrAppend(&encoders, "audio", dp);
    for (const MediumKind kind :
         {MediumKind::kAudio, MediumKind::kImage, MediumKind::kVideo}) {
      const uint64_t samples = media_.with[kind];
      if (samples == 0 || takes(kind)) continue;
      setup_.unsure.push_back(absl::StrCat(
          Counted(samples, "sample"), " of those read with ",
          WordsOf(kind).many,
          ", which the profile does not take: they are bad samples; name "
          "another model with --model-dir, or leave out their sources"));
    }
    text_.Line("topology:");
    text_.Line(absl::StrCat("  modules: {", encoders,
                            "language: {dp: ", ranks(), "}}"),
               seen_.gpus > 0 ? "data-parallel ranks: the GPUs of this machine"
                              : "data-parallel ranks: no GPU was found");
    setup_.found.push_back(seen_.gpus > 0 ? Counted(seen_.gpus, "GPU")
                                          : std::string("no GPU: one rank"));
  }

  void Storage() {
    if (!seen_.in_store) return;
    const std::string section = StoreSettingsText(seen_.store);
    constexpr char kCache[] = "cache: {dir: /nvme/ballast, size: 500GiB}";
    constexpr char kWhy[] = "a local disk, so that later epochs need no store";
    if (section.empty()) {
      text_.Line(absl::StrCat("# storage: {", kCache, "}"), kWhy);
      return;
    }
    text_.Line("storage:");
    text_.Line(absl::StrCat("  ", section), "where the store is, and its keys");
    text_.Line(absl::StrCat("  # ", kCache), kWhy);
  }

  void Rest() {
    if (model_.has_costs) {
      text_.Line("balance:");
      text_.Line(
          absl::StrCat(
              "  cost: {model: ", Quoted(seen_.model.folder),
              media_.with[MediumKind::kAudio] > 0 ? ", audio: {linear: 1}" : "",
              "}"),
          "what a sample costs, by config.json");
    }
    uint64_t memory = 8 * kGiB;
    while (seen_.memory_bytes > 0 && memory > seen_.memory_bytes / 4 &&
           memory > 256 * kMiB) {
      memory /= 2;
    }
    text_.Line("serve:");
    text_.Line("  listen: [\"127.0.0.1:7070\"]", "trainers connect here");
    text_.Line("  # http: \"127.0.0.1:9464\"",
               "a page that shows the balance live");
    text_.Line(absl::StrCat("  memory: ", SizeText(memory)),
               "for blocks; at most a quarter of this machine's");
  }

  void Others() {
    for (const SeenOther& other : seen_.others) {
      setup_.unsure.push_back(
          absl::StrCat("left out ", other.path, ": ", other.reason));
    }
    if (seen_.cut) {
      setup_.unsure.push_back(
          absl::StrCat(seen_.folder,
                       " holds more than was looked at (six folders deep, "
                       "200000 entries",
                       seen_.in_store ? ", 1000 folders" : "",
                       "); add what is missing as sources"));
    }
  }

  const Seen& seen_;
  ModelChoice model_;
  Text text_;
  Setup setup_;
  std::set<std::string> names_;
  SeenMedia media_;
  uint64_t most_text_ = 0;
};

}  // namespace

absl::StatusOr<Setup> DecideSetup(const Seen& seen) {
  return Decider(seen).Decide();
}

}  // namespace ballast
