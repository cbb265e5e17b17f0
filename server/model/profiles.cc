#include "server/model/profiles.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/sha256.h"
#include "proto/image/job_images.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/rows_rule.h"
#include "server/model/image_family_config.h"

namespace ballast {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using Profile = v1::ModelProfile;

struct Embedded {
  absl::string_view name;
  absl::string_view text;
};
constexpr Embedded kEmbedded[] = {
#include "models/embedded.inc"
};

// The bound of balance.cost's coefficients.
constexpr double kMaxCost = 1e9;

constexpr char kEnding[] = ".textproto";
constexpr char kTransformers[] = "+transformers";

struct Known {
  Profile profile;
  ImageFamily images;
};

// Faults of one file, each with its line.
class Faults : public google::protobuf::io::ErrorCollector {
 public:
  // Of the file of this name, which holds `content`.
  Faults(absl::string_view file, absl::string_view content)
      : file_(file), content_(absl::StrSplit(content, '\n')) {}

  // Counts lines from 0, as protobuf does; -1: of the whole file.
  void AddError(int line, int /*column*/, const std::string& text) override {
    if (absl::StartsWith(text, "Unknown enumeration value of \"")) {
      // The parser gives the line of the token after the value.
      const std::vector<absl::string_view> parts = absl::StrSplit(text, '"');
      line = std::min(line, static_cast<int>(content_.size()) - 1);
      while (line > 0 && !absl::StrContains(content_[line], parts[1])) --line;
    }
    lines_.push_back(
        absl::StrCat(file_, ":", line < 0 ? 1 : line + 1, ": ", text));
  }

  absl::Status ToStatus() const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  const absl::string_view file_;
  const std::vector<absl::string_view> content_;
  std::vector<std::string> lines_;
};

// Whether the file itself gives a field.
bool Gives(const Message& message, const FieldDescriptor* field) {
  return field->is_repeated()
             ? message.GetReflection()->FieldSize(message, field) > 0
             : message.GetReflection()->HasField(message, field);
}

// The rule of images whose numbers a rule of videos reads.
v1::ImageFamily::Rule ImagesOfVideos(v1::Videos::Rule rule) {
  switch (rule) {
    case v1::Videos::RULE_QWEN2:
    case v1::Videos::RULE_QWEN3:
      return v1::ImageFamily::RULE_SMART_RESIZE;
    case v1::Videos::RULE_LLAVA_VIDEO:
    case v1::Videos::RULE_LLAVA_ONEVISION:
      return v1::ImageFamily::RULE_PINPOINTS;
    case v1::Videos::RULE_INTERNVL:
      return v1::ImageFamily::RULE_TILE_GRID;
    default:
      return v1::ImageFamily::RULE_UNSPECIFIED;
  }
}

// What no file takes over from its base, and no `transformers` gives.
constexpr const char* kOfOneFile[] = {
    "name", "base", "checkpoints", "other_templates", "transformers", "cost"};

// Checks one file. `own` is as written, `whole` with its base; likewise its
// section `transformers`, whose name with a dot is then `within`. Keys that are
// not written have the line `around`.
class Checker {
 public:
  Checker(const Profile& own, const Profile& whole,
          const TextFormat::ParseInfoTree& places, Faults* faults,
          absl::string_view within = "", int around = -1)
      : own_(own),
        whole_(whole),
        places_(places),
        faults_(*faults),
        within_(within),
        around_(around) {}

  void Check() {
    CheckImages();
    CheckNorm();
    CheckIds();
    CheckChat();
    CheckVideos();
    CheckAudio();
    CheckMedium();
    CheckCost();
    for (int i = 0; i < own_.checkpoints_size(); ++i) {
      CheckCheckpoint(own_.checkpoints(i),
                      absl::StrCat("checkpoints[", i, "]"));
    }
  }

  // Likewise of a section `transformers`.
  void CheckSection() {
    for (const char* name : kOfOneFile) {
      if (!Gives(own_, Profile::descriptor()->FindFieldByName(name))) continue;
      Add(name, "found it in transformers; wanted it in the file itself");
    }
    Check();
  }

 private:
  // The line of a key such as `images.canvases[2].width`; of its base where the
  // key comes from there.
  int GetLine(absl::string_view key) const {
    const TextFormat::ParseInfoTree* tree = &places_;
    const google::protobuf::Descriptor* type = Profile::descriptor();
    int line = places_.GetLocation(type->FindFieldByName("base"), -1).line;
    line = std::max(line, around_);
    for (const absl::string_view part : absl::StrSplit(key, '.')) {
      const std::vector<absl::string_view> pieces =
          absl::StrSplit(part, absl::ByAnyChar("[]"));
      int index = 0;
      const bool has_index =
          pieces.size() > 1 && absl::SimpleAtoi(pieces[1], &index);
      const FieldDescriptor* field =
          type == nullptr ? nullptr
                          : type->FindFieldByName(std::string(pieces[0]));
      if (field == nullptr) break;
      const int at = field->is_repeated() ? (has_index ? index : 0) : -1;
      const int found = tree->GetLocation(field, at).line;
      if (found < 0) break;
      line = found;
      type = field->message_type();
      if (type == nullptr) break;
      tree = tree->GetTreeForNested(field, at);
      if (tree == nullptr) break;
    }
    return line;
  }

  template <typename... Piece>
  void Add(absl::string_view key, const Piece&... pieces) {
    faults_.AddError(GetLine(key), 0,
                     absl::StrCat(within_, key, ": ", pieces...));
  }

  void CheckImages() {
    if (TakesRowsAlone()) return;
    const v1::ImageFamily& images = whole_.images();
    if (images.rule() == v1::ImageFamily::RULE_UNSPECIFIED) {
      Add("images.rule", "found none; wanted the name of a rule");
      return;
    }
    if (images.background_size() != 0 && images.background_size() != 3) {
      Add("images.background", "found ", images.background_size(),
          " values; wanted 3, for R, G and B");
    }
    for (const double value : images.background()) {
      if (value == std::floor(value) && value >= 0 && value <= 255) continue;
      Add("images.background", "found ", value,
          "; wanted whole numbers, 0 to 255");
    }
    const ImageFamily family = FamilyOfConfig(images);
    const auto* type = v1::ImageFamily::descriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const std::string& name = type->field(i)->name();
      if (ReadsNumber(family.rule, name) ||
          !Gives(own_.images(), type->field(i))) {
        continue;
      }
      Add(absl::StrCat("images.", name), "found it with rule ",
          v1::ImageFamily::Rule_Name(images.rule()),
          ", which does not read it; wanted it omitted");
    }
    if (const auto fault = FindFamilyFault(family)) {
      Add(absl::StrCat("images.", fault->key), "found ", fault->found,
          "; wanted ", fault->wanted);
    }
    const std::string axes = FindAxesFault(family, whole_.position_axes());
    if (!axes.empty()) {
      Add("position_axes", "found ", whole_.position_axes(), "; wanted ", axes);
    }
  }

  void CheckNorm() {
    const auto check = [this](const char* key, int size) {
      if (size == 3 || (size == 0 && IsEncoder(whole_))) return;
      if (TakesRowsAlone()) return;
      Add(key, "found ", size, " values; wanted 3, for R, G and B in [0, 1]");
    };
    check("mean", whole_.mean_size());
    check("std", whole_.std_size());
    for (const double value : whole_.std()) {
      if (value > 0) continue;
      Add("std", "found ", value, "; wanted numbers above 0");
    }
  }

  void CheckIds() {
    if (!whole_.has_token_ids()) return;
    const v1::TokenIds& ids = whole_.token_ids();
    const auto* type = ids.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (field->number() == v1::TokenIds::kAudioFieldNumber &&
          !whole_.has_audio() && !whole_.has_medium()) {
        continue;
      }
      if (Gives(ids, field) && ids.GetReflection()->GetInt32(ids, field) >= 0) {
        continue;
      }
      Add("token_ids", "found no ", field->name(),
          "; wanted all ids, each at least 0, or no section token_ids");
    }
    const ImageFamily family = FamilyOfConfig(whole_.images());
    if (family.rule == ImageRule::kSmartResize &&
        family.layout == PatchLayout::kMergeOrder &&
        family.filter == ResampleFilter::kBicubic && family.tokens_a_row == 0 &&
        family.tokens_an_image == 0 && !MarksParts(family.marks) &&
        !family.marks.before.empty() && !family.marks.after.empty()) {
      return;
    }
    Add("token_ids",
        "found them with other images than Qwen's form; wanted none, or images "
        "of rule RULE_SMART_RESIZE, filter FILTER_BICUBIC, layout "
        "LAYOUT_MERGE_ORDER and marks placeholder, before and after alone");
  }

  void CheckChat() {
    const std::string& name = whole_.chat_template();
    if (!name.empty() && name != "chatml" && name != "llama3") {
      Add("chat_template", "found \"", name,
          "\"; wanted chatml, llama3, or a section chat");
    }
    if (own_.has_chat() && !own_.chat_template().empty()) {
      Add("chat_template", "found it with a section chat; wanted one of both");
    }
    // Audio alone: the configuration names a template.
    if (TakesRowsAlone()) return;
    if (name.empty() && !whole_.has_chat() && !IsEncoder(whole_)) {
      Add("chat", "found none; wanted it, or chat_template: \"chatml\"");
    }
    for (int i = 0; i < own_.other_templates_size(); ++i) {
      const Profile* other = FindProfile(own_.other_templates(i));
      if (other != nullptr && HasChat(*other)) continue;
      Add(absl::StrCat("other_templates[", i, "]"), "found \"",
          own_.other_templates(i),
          "\"; wanted the name of a released model with a section chat");
    }
  }

  void CheckVideos() {
    if (!whole_.has_videos()) return;
    const v1::Videos::Rule rule = whole_.videos().rule();
    const v1::ImageFamily::Rule images = whole_.images().rule();
    const v1::ImageFamily::Rule wanted = ImagesOfVideos(rule);
    if (wanted == v1::ImageFamily::RULE_UNSPECIFIED) {
      Add("videos.rule", "found none; wanted the name of a rule");
    } else if (images != wanted) {
      Add("videos.rule", "found ", v1::Videos::Rule_Name(rule),
          " with images of ", v1::ImageFamily::Rule_Name(images), "; wanted ",
          v1::ImageFamily::Rule_Name(wanted));
    } else if (images == v1::ImageFamily::RULE_SMART_RESIZE &&
               !whole_.has_token_ids()) {
      Add("videos.rule", "found ", v1::Videos::Rule_Name(rule),
          " without token_ids; wanted them");
    }
  }

  // Numbers with which nothing divides by 0, and no row is too long.
  void CheckCost() {
    if (!whole_.has_cost()) return;
    const v1::ModelCost& cost = whole_.cost();
    if (cost.checkpoint().empty()) {
      Add("cost.checkpoint", "missing; wanted the checkpoint's name");
    }
    for (const auto* of : {&cost.vision(), &cost.audio(), &cost.language()}) {
      for (const double number : {of->linear(), of->quadratic()}) {
        if (number >= 0 && number <= kMaxCost) continue;
        Add("cost", "found ", number, "; wanted 0 to ", kMaxCost);
      }
    }
  }

  // Whether the model takes no images, but audio or a kind of `medium`.
  bool TakesRowsAlone() const {
    return !TakesImages(whole_) && (whole_.has_audio() || whole_.has_medium());
  }

  void CheckMedium() {
    if (!whole_.has_medium()) return;
    if (whole_.has_audio()) {
      Add("medium", "found it with a section audio; wanted one of both");
    }
    const auto rule = OpenRowsRule(whole_.medium());
    if (!rule.ok()) Add("medium", rule.status().message());
  }

  void CheckAudio() {
    if (!whole_.has_audio()) return;
    const v1::AudioFamily& audio = whole_.audio();
    const auto check = [this](const char* key, bool is_good,
                              const char* wanted) {
      if (!is_good) Add(key, "found another number; wanted ", wanted);
    };
    check("audio.frames.hop",
          audio.frames().hop() > 0 && audio.frames().hop() <= uint32_t{1} << 16,
          "1 to 65536");
    check("audio.frames.span", audio.frames().span() > 0, "at least 1");
    check("audio.frames.tail", audio.frames().tail() <= 16, "at most 16");
    check("audio.frames.valid",
          audio.frames().valid() != v1::AudioFamily::Frames::VALID_UNSPECIFIED,
          "VALID_BEGUN or VALID_WHOLE");
    const uint64_t width = uint64_t{audio.features().mels()} *
                           std::max(audio.frames().stack(), uint32_t{1});
    check("audio.features.mels", width >= 1 && width <= 1023,
          "1 to 1023, times audio.frames.stack");
    const uint32_t transform = audio.features().transform();
    check("audio.features.transform",
          transform >= 4 && transform <= uint32_t{1} << 16, "4 to 65536");
    check("audio.features.window_length",
          audio.features().window_length() >= 2 &&
              audio.features().window_length() <= transform,
          "2 to audio.features.transform");
    check("audio.features.floor", audio.features().floor() > 0,
          "more than 0, since its logarithm is taken");
    check("audio.features.max_hertz",
          audio.features().min_hertz() >= 0 &&
              audio.features().min_hertz() < audio.features().max_hertz() &&
              audio.features().max_hertz() <= 8000,
          "more than min_hertz, at most 8000");
    for (const v1::AudioFamily::Tokens::Layer& layer :
         audio.tokens().layers()) {
      check("audio.tokens.layers", layer.kernel() > 0 && layer.stride() > 0,
            "kernel and stride of at least 1");
    }
  }

  void CheckCheckpoint(const v1::ModelCheckpoint& one, const std::string& key) {
    if (one.model_type().empty() == one.image_processor().empty()) {
      Add(key, "found ", one.model_type().empty() ? "neither" : "both",
          " of model_type and image_processor; wanted one of them");
    }
    const auto check = [&](const auto& values, absl::string_view name) {
      for (int i = 0; i < values.size(); ++i) {
        if (nlohmann::json::accept(values[i].json())) continue;
        Add(absl::StrCat(key, ".", name, "[", i, "].json"), "found ",
            values[i].json(), "; wanted JSON, such as \"true\" or \"16\"");
      }
    };
    check(one.config(), "config");
    check(one.preprocessor(), "preprocessor");
  }

  const Profile& own_;
  const Profile& whole_;
  const TextFormat::ParseInfoTree& places_;
  Faults& faults_;
  const absl::string_view within_;
  const int around_;
};

// `own` with the sections and values of `base` that it does not give.
Profile Replaced(const Profile& own, Profile base) {
  // The one replaces the other.
  if (own.has_chat()) base.clear_chat_template();
  if (!own.chat_template().empty()) base.clear_chat();
  const auto* type = Profile::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    if (Gives(own, type->field(i))) {
      base.GetReflection()->ClearField(&base, type->field(i));
    }
  }
  base.MergeFrom(own);
  return base;
}

void Clear(const char* name, Profile* profile) {
  profile->GetReflection()->ClearField(
      profile, Profile::descriptor()->FindFieldByName(name));
}

Profile WithBase(const Profile& own, Profile base) {
  for (const char* name : kOfOneFile) Clear(name, &base);
  return Replaced(own, std::move(base));
}

// The profile of a file, whose base is nullptr or a result of this function.
// `transformers` of the result is the whole profile under these rules, or unset
// if it is the same.
Profile Whole(Profile own, const Profile* base, const std::string& name) {
  // Images are named by the file that says them.
  if (own.has_images() && own.images().name().empty()) {
    own.mutable_images()->set_name(name);
  }
  Profile section = own.transformers();
  own.clear_transformers();
  if (section.has_images()) section.mutable_images()->set_name(name);
  Profile theirs = Replaced(section, own);
  if (base != nullptr) {
    theirs = WithBase(theirs,
                      base->has_transformers() ? base->transformers() : *base);
    own = WithBase(own, *base);
  }
  own.clear_base();
  own.set_name(name);
  theirs.clear_base();
  theirs.set_name(name);
  if (theirs.SerializeAsString() != own.SerializeAsString()) {
    theirs.set_name(absl::StrCat(name, kTransformers));
    *own.mutable_transformers() = std::move(theirs);
  }
  return own;
}

using KnownProfiles = std::map<std::string, Known, std::less<>>;

// Adds a profile that Whole made, by its name and by that under the rules of
// transformers.
const Profile* AddKnown(Profile whole, KnownProfiles* known) {
  if (whole.has_transformers()) {
    const Profile& theirs = whole.transformers();
    known->try_emplace(theirs.name(),
                       Known{theirs, FamilyOfConfig(theirs.images())});
  }
  const std::string name = whole.name();
  ImageFamily images = FamilyOfConfig(whole.images());
  return &known->try_emplace(name, Known{std::move(whole), std::move(images)})
              .first->second.profile;
}

// The released models. That each of their files is read and has no fault is
// tested (tests/server/model/profiles_test.cc).
class Released {
 public:
  static const Released& Get() {
    static const auto& released = *new Released();
    return released;
  }

  const Known* Find(absl::string_view name) const {
    const auto found = profiles_.find(name);
    return found == profiles_.end() ? nullptr : &found->second;
  }

 private:
  Released() {
    for (const Embedded& file : kEmbedded) Add(file);
  }

  const Profile* Add(const Embedded& file) {
    if (const Known* known = Find(file.name)) return &known->profile;
    Profile own;
    TextFormat::ParseFromString(std::string(file.text), &own);
    const auto* base =
        std::find_if(std::begin(kEmbedded), std::end(kEmbedded),
                     [&](const Embedded& f) { return f.name == own.base(); });
    const bool has_base =
        base != std::end(kEmbedded) && base->name != file.name;
    return AddKnown(Whole(std::move(own), has_base ? Add(*base) : nullptr,
                          std::string(file.name)),
                    &profiles_);
  }

  KnownProfiles profiles_;
};

struct Users {
  Mutex mutex;
  // Entries are never removed.
  KnownProfiles profiles ABSL_GUARDED_BY(mutex);
};

Users& UsersOfProcess() {
  static auto& users = *new Users();
  return users;
}

const Known* FindKnown(absl::string_view name) {
  if (const Known* released = Released::Get().Find(name)) return released;
  if (!absl::StrContains(name, '@')) return nullptr;
  Users& users = UsersOfProcess();
  const MutexLock lock(&users.mutex);
  const auto found = users.profiles.find(name);
  return found == users.profiles.end() ? nullptr : &found->second;
}

}  // namespace

const v1::ModelProfile* FindProfile(absl::string_view name) {
  const Known* known = FindKnown(name);
  return known == nullptr ? nullptr : &known->profile;
}

std::string NameUnderRules(absl::string_view name, v1::Model::Rules rules) {
  const Profile* profile = FindProfile(name);
  return rules == v1::Model::RULES_TRANSFORMERS && profile != nullptr &&
                 profile->has_transformers()
             ? profile->transformers().name()
             : std::string(name);
}

absl::string_view WithoutRules(absl::string_view name) {
  absl::ConsumeSuffix(&name, kTransformers);
  return name;
}

bool FollowsAuthors(absl::string_view name) {
  const Profile* profile = FindProfile(name);
  return profile != nullptr && profile->has_transformers();
}

void ApplyRules(v1::Model* model) {
  model->set_profile(NameUnderRules(model->profile(), model->rules()));
  model->set_chat_template(
      NameUnderRules(model->chat_template(), model->rules()));
}

std::vector<std::string> DifferentSections(const v1::ModelProfile& profile) {
  std::vector<std::string> names;
  if (!profile.has_transformers()) return names;
  const auto* type = Profile::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->name() == "name" || field->name() == "transformers") continue;
    const auto only = [field](const Profile& from) {
      Profile one = from;
      std::vector<const FieldDescriptor*> others;
      one.GetReflection()->ListFields(one, &others);
      for (const FieldDescriptor* other : others) {
        if (other != field) one.GetReflection()->ClearField(&one, other);
      }
      return one.SerializeAsString();
    };
    if (only(profile) != only(profile.transformers())) {
      names.push_back(field->name());
    }
  }
  return names;
}

std::vector<std::string> ProfileNames(
    bool (*is_wanted)(const v1::ModelProfile&)) {
  std::vector<std::string> names;
  for (const Embedded& file : kEmbedded) {
    if (is_wanted != nullptr && !is_wanted(*FindProfile(file.name))) continue;
    names.emplace_back(file.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool HasChat(const v1::ModelProfile& profile) {
  return profile.has_chat() && profile.chat_template().empty();
}

const v1::Chat* FindChat(absl::string_view name) {
  const v1::ModelProfile* profile = FindProfile(name);
  return profile != nullptr && HasChat(*profile) ? &profile->chat() : nullptr;
}

const v1::AudioFamily* FindAudioFamily(absl::string_view name) {
  const v1::ModelProfile* profile = FindProfile(name);
  return profile != nullptr && profile->has_audio() ? &profile->audio()
                                                    : nullptr;
}

const v1::AudioFamily::Marks* GetRowsMarks(const v1::Model& model) {
  const v1::ModelProfile* profile = GetProfile(model);
  if (profile == nullptr) return nullptr;
  if (profile->has_audio()) return &profile->audio().marks();
  return profile->has_medium() ? &profile->medium().marks() : nullptr;
}

std::vector<std::string> AudioFamilyNames() {
  return ProfileNames(
      [](const v1::ModelProfile& profile) { return profile.has_audio(); });
}

bool HasFloatPositions(const v1::Model& model) {
  const v1::AudioFamily* audio = GetAudioFamily(model);
  return model.position_axes() == 3 && audio != nullptr &&
         audio->in_video().rule() == v1::AudioFamily::InVideo::RULE_MERGE;
}

bool IsEncoder(const v1::ModelProfile& profile) {
  return TakesImages(profile) && profile.images().marks().placeholder().empty();
}

v1::Videos::Rule GetVideoRule(const v1::Model& model) {
  const v1::ModelProfile* profile = GetProfile(model);
  if (profile == nullptr || !profile->has_videos()) {
    return v1::Videos::RULE_UNSPECIFIED;
  }
  const v1::Videos::Rule rule = profile->videos().rule();
  const bool has_its_images =
      profile->has_token_ids()
          ? HasImageKeys(model)
          : model.image_family().rule() == ImagesOfVideos(rule);
  return has_its_images ? rule : v1::Videos::RULE_UNSPECIFIED;
}

bool IsProfilePath(absl::string_view profile) {
  return absl::EndsWith(profile, kEnding);
}

absl::StatusOr<v1::ModelProfile> ParseProfile(absl::string_view text,
                                              absl::string_view file) {
  Faults faults(file, text);
  TextFormat::ParseInfoTree places;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&faults);
  parser.WriteLocationsTo(&places);
  Profile own;
  if (!parser.ParseFromString(std::string(text), &own)) {
    return faults.ToStatus();
  }
  const Profile* base = nullptr;
  if (!own.base().empty()) {
    base = FindProfile(own.base());
    if (base == nullptr) {
      faults.AddError(
          places.GetLocation(Profile::descriptor()->FindFieldByName("base"), -1)
              .line,
          0,
          absl::StrCat("base: found \"", own.base(), "\"; wanted one of ",
                       absl::StrJoin(ProfileNames(), ", ")));
      return faults.ToStatus();
    }
  }
  std::string name = own.name();
  if (name.empty()) {
    const absl::string_view stem = file.substr(file.rfind('/') + 1);
    name = std::string(stem.substr(
        0, stem.size() -
               (IsProfilePath(stem) ? absl::string_view(kEnding).size() : 0)));
  }
  Profile whole = Whole(own, base, name);
  Checker(own, whole, places, &faults).Check();
  if (own.has_transformers()) {
    const FieldDescriptor* section =
        Profile::descriptor()->FindFieldByName("transformers");
    Checker(own.transformers(),
            whole.has_transformers() ? whole.transformers() : whole,
            *places.GetTreeForNested(section, -1), &faults, "transformers.",
            places.GetLocation(section, -1).line)
        .CheckSection();
  }
  if (absl::Status status = faults.ToStatus(); !status.ok()) return status;
  return whole;
}

std::string AddProfile(v1::ModelProfile profile) {
  // Who trained the model changes nothing.
  profile.clear_trained_by();
  if (profile.has_transformers()) {
    profile.mutable_transformers()->clear_trained_by();
  }
  const std::string said = profile.SerializeAsString();
  const auto* bytes = reinterpret_cast<const uint8_t*>(said.data());
  const std::string old_name = profile.name();
  const std::string name = absl::StrCat(
      old_name, "@",
      Sha256Hex(absl::MakeConstSpan(bytes, said.size())).substr(0, 16));
  const auto rename = [&](const std::string& to, Profile* one) {
    if (one->images().name() == old_name) {
      one->mutable_images()->set_name(name);
    }
    one->set_name(to);
  };
  rename(name, &profile);
  if (profile.has_transformers()) {
    rename(absl::StrCat(name, kTransformers), profile.mutable_transformers());
  }
  Users& users = UsersOfProcess();
  const MutexLock lock(&users.mutex);
  AddKnown(std::move(profile), &users.profiles);
  return name;
}

const ImageFamily* FindImageFamily(absl::string_view name) {
  const Known* known = FindKnown(name);
  return known == nullptr ? nullptr : &known->images;
}

ImageFamily GetImageFamily(const v1::Model& model) {
  if (!HasImageKeys(model)) return FamilyOfConfig(model.image_family());
  const v1::ModelProfile* profile = GetProfile(model);
  ImageFamily family = profile == nullptr ? *FindImageFamily("qwen2_5_vl")
                                          : FamilyOfConfig(profile->images());
  family.patch = model.patch();
  family.merge = model.merge();
  family.temporal_patch = model.temporal_patch();
  family.min_pixels = model.min_pixels();
  family.max_pixels = model.max_pixels();
  return family;
}

}  // namespace ballast
