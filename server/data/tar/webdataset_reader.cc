#include "server/data/tar/webdataset_reader.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

bool IsImage(absl::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png" ||
         extension == "webp";
}

bool IsVideo(absl::string_view extension) {
  return extension == "mp4" || extension == "avi" || extension == "webm" ||
         extension == "mov" || extension == "mkv";
}

bool IsAudio(absl::string_view extension) {
  return extension == "wav" || extension == "flac" || extension == "mp3" ||
         extension == "ogg" || extension == "opus" || extension == "m4a";
}

// Media of formats that are not read, or whose names have another form.
bool IsOtherMedia(absl::string_view ending) {
  constexpr absl::string_view kEndings[] = {
      "gif", "bmp", "tif", "tiff", "jfif", "jpe",  "avif", "heic", "heif",
      "jp2", "ppm", "pgm", "svg",  "m4v",  "mpg",  "mpeg", "ts",   "flv",
      "wmv", "3gp", "aac", "wma",  "aif",  "aiff", "amr"};
  return IsImage(ending) || IsVideo(ending) || IsAudio(ending) ||
         std::count(std::begin(kEndings), std::end(kEndings), ending) > 0;
}

// Endings of files that may hold an image in another form: arrays, pickles,
// base64.
bool MayHoldMedia(absl::string_view ending) {
  constexpr absl::string_view kEndings[] = {
      "npy", "npz",     "pyd",    "pkl",   "pickle", "pt",
      "pth", "ten",     "tensor", "b64",   "base64", "image",
      "img", "picture", "pic",    "video", "audio"};
  return std::count(std::begin(kEndings), std::end(kEndings), ending) > 0;
}

constexpr char kNotRead[] = "member not read";
constexpr char kDotInName[] = "a dot in the name";

// A member whose key ends at a dot that its author did not mean.
absl::Status DotFault(absl::string_view name, absl::string_view key) {
  return OfKind(
      DataFaultError(absl::StrCat(
          "\"", Printable(name),
          "\": the key of a member ends at the first dot "
          "of its name, here after \"",
          Printable(key),
          "\", and no member with such an ending is read, so the sample would "
          "be "
          "lost; wanted names with one dot, or a recipe (docs/recipes.md)")),
      kDotInName);
}

// How many unread members are kept while no sample has their key.
constexpr size_t kMaxUnread = 64;

// Accepts at most 9 digits, so that the number fits.
std::optional<uint32_t> ParseNumber(absl::string_view digits) {
  uint32_t number = 0;
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(digits, &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

absl::Status UnreadMedia(absl::string_view name, absl::string_view what) {
  return OfKind(
      DataFaultError(absl::StrCat(
          "\"", Printable(name), "\" ", what,
          " and is not read, so the sample would lose it; wanted KEY.jpg, "
          ".jpeg, "
          ".png or .webp, KEY.0.jpg and so on, video and audio as docs/data.md "
          "names them where the model takes them, or a recipe "
          "(docs/recipes.md)")),
      kNotRead);
}

bool IsMediaContent(absl::string_view head) {
  using Bytes = absl::string_view;
  constexpr Bytes kHeads[] = {
      Bytes("\xff\xd8\xff", 3), Bytes("\x89PNG", 4), "GIF8", Bytes("II*\0", 4),
      Bytes("MM\0*", 4), "OggS", "fLaC", "ID3", Bytes("\x1a\x45\xdf\xa3", 4),
      Bytes("\x93NUMPY", 6),
      // base64 of JPEG, PNG, GIF and RIFF
      "/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "data:image/"};
  const auto begins = [&](Bytes with) { return absl::StartsWith(head, with); };
  if (begins("BM"))
    return head.substr(std::min<size_t>(head.size(), 6), 4) ==
           Bytes("\0\0\0\0", 4);
  if (begins("RIFF")) {
    const Bytes form = head.substr(std::min<size_t>(head.size(), 8), 4);
    return form == "WEBP" || form == "WAVE" || form == "AVI ";
  }
  return std::any_of(std::begin(kHeads), std::end(kHeads), begins) ||
         head.substr(std::min<size_t>(head.size(), 4), 4) == "ftyp";
}

MemberName ParseMemberName(absl::string_view name) {
  MemberName result;
  while (absl::ConsumePrefix(&name, "./")) {
  }
  const size_t slash = name.rfind('/');
  const size_t base = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == name.npos) return result;
  result.extension = absl::AsciiStrToLower(name.substr(dot + 1));
  if (dot == base) return result;
  result.key = std::string(name.substr(0, dot));

  absl::string_view extension = result.extension;
  if (extension == "json") {
    result.kind = MemberName::Kind::kConversation;
  } else if (extension == "txt") {
    result.kind = MemberName::Kind::kDocument;
  } else if (extension == "tokens.bin") {
    result.kind = MemberName::Kind::kPackedBytes;
  } else if (extension == "tokens.json") {
    result.kind = MemberName::Kind::kPackedJson;
  } else if (IsImage(extension)) {
    result.kind = MemberName::Kind::kImage;
  } else if (const absl::string_view last =
                 extension.substr(extension.rfind('.') + 1);
             IsVideo(last) || IsAudio(last)) {
    result.kind =
        IsVideo(last) ? MemberName::Kind::kVideo : MemberName::Kind::kAudio;
    const size_t second = extension.rfind('.');
    if (second != extension.npos) {
      result.number = ParseNumber(extension.substr(0, second));
    }
  } else if (const size_t last = extension.rfind('.');
             last != extension.npos && IsImage(extension.substr(last + 1))) {
    const absl::string_view numbers = extension.substr(0, last);
    const size_t between = numbers.find('.');
    result.number = ParseNumber(numbers.substr(0, between));
    if (!result.number) return result;
    if (between == numbers.npos) {
      result.kind = MemberName::Kind::kImage;
    } else if (const auto picture = ParseNumber(numbers.substr(between + 1))) {
      result.kind = MemberName::Kind::kPicture;
      result.picture = *picture;
    }
  }
  return result;
}

// Collects the members of one sample and keeps the first fault.
class WebDatasetReader::Grouper {
 public:
  explicit Grouper(const MemberName& first) { sample_.key = first.key; }

  const std::string& key() const { return sample_.key; }

  // Notes a member of the same key that is not read.
  void AddUnread(Unread unread) {
    std::optional<Unread>& first = unread_[unread.kind];
    if (unread.kind == Unread::kText && first.has_value() &&
        first->stem != unread.stem &&
        (others_.empty() || others_.back().stem != unread.stem)) {
      others_.push_back(std::move(unread));
    } else if (!first.has_value()) {
      first = std::move(unread);
    }
  }

  // Whether it holds as many texts that are not read as it may.
  bool IsFull() const {
    return others_.size() >= kMaxUnread && sample_.text.name.empty();
  }
  // The other texts that are not read, of a sample that has none.
  std::vector<Unread> TakeOthers() {
    return sample_.text.name.empty() ? std::move(others_)
                                     : std::vector<Unread>();
  }

  void Add(const MemberName& name, TarMember member) {
    if (sample_.end == 0) sample_.begin = member.header;
    sample_.end = member.end;
    if (sample_.fault.ok()) sample_.fault = AddChecked(name, std::move(member));
  }

  WebDatasetSample Finish() && {
    if (sample_.fault.ok()) sample_.fault = CheckUnread();
    if (sample_.fault.ok()) sample_.fault = CheckWhole();
    if (!HasMedia() && unread_[Unread::kUnknown].has_value()) {
      sample_.unknown = std::move(unread_[Unread::kUnknown]->member);
    }
    if (sample_.fault.ok()) {
      for (const MediumKind kind : MediumKinds()) TakeMedia(kind);
    }
    return std::move(sample_);
  }

 private:
  // Moves the members of a kind to the sample.
  void TakeMedia(MediumKind kind) {
    for (auto& [number, member] : media_[kind].members) {
      MediumParts<TarMember>& medium = sample_.media.emplace_back();
      medium.kind = kind;
      const auto list = lists_.find(number);
      medium.is_list = kind == MediumKind::kVideo && list != lists_.end();
      if (!medium.is_list) {
        medium.parts.push_back(std::move(member));
        continue;
      }
      for (auto& [place, picture] : list->second) {
        medium.parts.push_back(std::move(picture));
      }
    }
  }

  absl::Status AddChecked(const MemberName& name, TarMember member) {
    BALLAST_RETURN_IF_ERROR(CheckDataPath(member.name));
    if (member.type != kTarFile) {
      return Fault("\"", Printable(member.name),
                   "\" is not a file but of type '",
                   Printable(absl::string_view(&member.type, 1)), "'");
    }
    bytes_ += member.size;
    if (bytes_ > kMaxSampleBytes) {
      return Fault("over ", kMaxSampleBytes, " bytes in all");
    }
    switch (name.kind) {
      case MemberName::Kind::kConversation:
        return AddText(RawSample::TextFormat::kConversation, std::move(member));
      case MemberName::Kind::kDocument:
        return AddText(RawSample::TextFormat::kPlain, std::move(member));
      case MemberName::Kind::kPackedBytes:
        return AddText(RawSample::TextFormat::kPackedBytes, std::move(member));
      case MemberName::Kind::kPackedJson:
        return AddText(RawSample::TextFormat::kPackedJson, std::move(member));
      case MemberName::Kind::kImage:
        return AddMedium(name, std::move(member), MediumKind::kImage);
      case MemberName::Kind::kVideo:
        return AddMedium(name, std::move(member), MediumKind::kVideo);
      case MemberName::Kind::kAudio:
        return AddMedium(name, std::move(member), MediumKind::kAudio);
      case MemberName::Kind::kPicture:
        return AddPicture(name, std::move(member));
      case MemberName::Kind::kIgnored:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status AddText(RawSample::TextFormat format, TarMember member) {
    if (!sample_.text.name.empty()) {
      return Fault("two texts: \"", Printable(sample_.text.name), "\" and \"",
                   Printable(member.name), "\"");
    }
    if (member.size > kMaxTextBytes) {
      return Fault("text of ", member.size, " bytes, wanted at most ",
                   kMaxTextBytes);
    }
    sample_.text_format = format;
    sample_.text = std::move(member);
    return absl::OkStatus();
  }

  // The members of one kind, by number.
  struct Media {
    absl::btree_map<uint32_t, TarMember> members = {};
    bool numbered = false;
  };

  absl::Status AddMedium(const MemberName& name, TarMember member,
                         MediumKind kind) {
    Media* const media = &media_[kind];
    const absl::string_view what = MediumName(kind);
    const uint32_t most =
        kind == MediumKind::kImage ? uint32_t{kMaxImages} : kMaxVideos;
    if (!media->members.empty() && media->numbered != name.number.has_value()) {
      return Fault(what, "s with and without a number");
    }
    media->numbered = name.number.has_value();
    const uint32_t number = name.number.value_or(0);
    if (number >= most) {
      return Fault(what, " ", number, ", wanted less than ", most);
    }
    const auto [other, added] =
        media->members.try_emplace(number, std::move(member));
    if (!added) {
      // try_emplace leaves the member untouched if it adds nothing.
      return Fault("two ", what, "s in one place: \"",
                   Printable(other->second.name), "\" and \"",
                   Printable(member.name), "\"");
    }
    return absl::OkStatus();
  }

  // The first picture of a list represents it among the videos.
  absl::Status AddPicture(const MemberName& name, TarMember member) {
    if (pictures_ == kMaxImages || name.picture >= kMaxImages) {
      return Fault("videos of over ", kMaxImages, " pictures in all");
    }
    ++pictures_;
    const auto [list, is_new] = lists_.try_emplace(*name.number);
    if (is_new)
      BALLAST_RETURN_IF_ERROR(AddMedium(name, member, MediumKind::kVideo));
    const auto [other, added] =
        list->second.try_emplace(name.picture, std::move(member));
    if (!added) {
      return Fault("two pictures in one place: \"",
                   Printable(other->second.name), "\" and \"",
                   Printable(member.name), "\"");
    }
    return absl::OkStatus();
  }

  bool HasMedia() const {
    return std::any_of(
        media_.values.begin(), media_.values.end(),
        [](const Media& media) { return !media.members.empty(); });
  }

  absl::Status CheckUnread() {
    const std::optional<Unread>& text = unread_[Unread::kText];
    if (sample_.text.name.empty() && text.has_value()) {
      const absl::Status fault = DotFault(text->member.name, sample_.key);
      sample_.key = text->stem;
      return fault;
    }
    if (const auto& media = unread_[Unread::kMedia]) {
      return UnreadMedia(media->member.name, "is media by its name");
    }
    if (const auto& content = unread_[Unread::kContent];
        content.has_value() && !HasMedia()) {
      return UnreadMedia(content->member.name,
                         "may be the medium of a sample that has no other");
    }
    return absl::OkStatus();
  }

  absl::Status CheckWhole() const {
    if (sample_.text.name.empty()) {
      return Fault(
          "no text; wanted a .json, .txt, .tokens.bin or .tokens.json member");
    }
    for (const MediumKind kind : MediumKinds()) {
      uint32_t wanted = 0;
      for (const auto& [number, member] : media_[kind].members) {
        if (number != wanted) {
          return Fault(MediumName(kind), " ", wanted, " is missing before \"",
                       Printable(member.name), "\"");
        }
        ++wanted;
      }
    }
    for (const auto& [number, pictures] : lists_) {
      uint32_t wanted = 0;
      for (const auto& [place, member] : pictures) {
        if (place != wanted) {
          return Fault("picture ", wanted, " of video ", number,
                       " is missing before \"", Printable(member.name), "\"");
        }
        ++wanted;
      }
    }
    return absl::OkStatus();
  }

  template <typename... Piece>
  static absl::Status Fault(const Piece&... pieces) {
    return DataFaultError(absl::StrCat(pieces...));
  }

  WebDatasetSample sample_;
  PerMedium<Media> media_;
  // Pictures by number, of videos by number.
  absl::btree_map<uint32_t, absl::btree_map<uint32_t, TarMember>> lists_;
  uint32_t pictures_ = 0;  // of all
  // The first of each kind; then further texts, of other stems.
  std::array<std::optional<Unread>, 4> unread_;
  std::vector<Unread> others_;
  uint64_t bytes_ = 0;
};

WebDatasetReader::WebDatasetReader(FileView file, uint64_t begin, uint64_t end,
                                   bool whole, bool lists, bool audios)
    : tar_(file, begin, end, whole), lists_(lists), audios_(audios) {}

WebDatasetReader::~WebDatasetReader() = default;

absl::StatusOr<std::optional<WebDatasetSample>> WebDatasetReader::Next() {
  pending_ = nullptr;
  while (true) {
    if (!next_) {
      BALLAST_ASSIGN_OR_RETURN(next_, tar_.Next());
    }
    const MemberName name = next_ ? ParseMemberName(next_->name) : MemberName();
    while (pending_ == nullptr && !unread_.empty() &&
           (!next_ || unread_.front().key != name.key ||
            unread_.size() >= kMaxUnread)) {
      if (std::optional<WebDatasetSample> lost = TakeLost()) return lost;
    }
    if (!next_) break;
    if (!IsRead(name)) {
      // Members of other keys may stand between those of a sample.
      if (pending_ != nullptr &&
          (unread_.size() >= kMaxUnread || pending_->IsFull())) {
        break;
      }
      if (next_->type == kTarFile) TakeUnread(name, *std::move(next_));
      next_.reset();
      continue;
    }
    if (pending_ != nullptr &&
        (name.key != pending_->key() || pending_->IsFull())) {
      break;
    }
    if (pending_ == nullptr) {
      pending_ = std::make_unique<Grouper>(name);
      // Those left have this key.
      for (Unread& unread : std::exchange(unread_, {})) {
        pending_->AddUnread(std::move(unread));
      }
    }
    pending_->Add(name, *std::exchange(next_, std::nullopt));
  }
  return TakePending();
}

std::optional<WebDatasetSample> WebDatasetReader::TakePending() {
  if (pending_ == nullptr) return std::nullopt;
  const std::unique_ptr<Grouper> grouper = std::exchange(pending_, nullptr);
  std::vector<Unread> others = grouper->TakeOthers();
  unread_.insert(unread_.begin(), std::make_move_iterator(others.begin()),
                 std::make_move_iterator(others.end()));
  return std::move(*grouper).Finish();
}

bool WebDatasetReader::IsRead(const MemberName& name) const {
  return name.kind != MemberName::Kind::kIgnored &&
         (name.kind != MemberName::Kind::kPicture || lists_) &&
         (name.kind != MemberName::Kind::kAudio || audios_);
}

void WebDatasetReader::TakeUnread(const MemberName& name, TarMember member) {
  CountIgnored(name.extension);
  if (name.key.empty()) return;
  Unread unread;
  unread.key = name.key;
  const absl::string_view extension = name.extension;
  const absl::string_view ending = extension.substr(extension.rfind('.') + 1);
  if (IsOtherMedia(ending)) {
    unread.kind = Unread::kMedia;
  } else if (ending == "json" || ending == "txt") {
    unread.kind = Unread::kText;
  } else if (MayHoldMedia(ending)) {
    unread.kind = Unread::kContent;
  }
  unread.stem = member.name.substr(0, member.name.rfind('.'));
  unread.member = std::move(member);
  if (pending_ != nullptr && name.key == pending_->key()) {
    pending_->AddUnread(std::move(unread));
  } else {
    unread_.push_back(std::move(unread));
  }
}

std::optional<WebDatasetSample> WebDatasetReader::TakeLost() {
  WebDatasetSample sample;
  const Unread first = std::move(unread_.front());
  bool is_lost = false;
  sample.key = first.stem;
  sample.begin = first.member.header;
  const auto add = [&](const Unread& one) {
    is_lost |= one.kind == Unread::kMedia || one.kind == Unread::kText;
    sample.end = one.member.end;
  };
  add(first);
  unread_.pop_front();
  while (!unread_.empty() && unread_.front().stem == first.stem) {
    add(unread_.front());
    unread_.pop_front();
  }
  if (!is_lost) return std::nullopt;
  const bool has_dot =
      first.stem.size() > first.key.size() &&
      absl::StrContains(first.stem.substr(first.stem.rfind('/') + 1), '.');
  sample.fault = has_dot
                     ? DotFault(first.member.name, first.key)
                     : UnreadMedia(first.member.name, "is media by its name");
  return sample;
}

void WebDatasetReader::CountIgnored(absl::string_view extension) {
  constexpr size_t kMaxExtensions = 1000;
  constexpr size_t kMaxExtension = 32;
  if (extension.size() > kMaxExtension ||
      (ignored_.size() >= kMaxExtensions && !ignored_.contains(extension))) {
    extension = "(other)";
  }
  ++ignored_[std::string(extension)];
}

}  // namespace ballast
