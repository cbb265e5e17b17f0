#include "server/text/sentencepiece/sentencepiece_tokenizer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/sample/data_fault.h"
#include "server/text/bpe/added_tokens.h"
#include "server/text/bpe/regex.h"
#include "server/text/sentencepiece/helper_image.h"
#include "server/text/sentencepiece/model.pb.h"
#include "server/text/sentencepiece/protocol.h"

namespace ballast {
namespace {

using sentencepiece_helper::EncodeRequest;
using sentencepiece_helper::LoadRequest;

constexpr uint64_t kMaxRequestText = uint64_t{1} << 30;
// Far above the ids of any sample's text.
constexpr uint64_t kMaxAnswerBytes = uint64_t{8} << 29;
constexpr uint64_t kMaxReasonBytes = 1 << 16;

std::string NoLibrary() {
  return HelperLibrariesAdvice("SentencePiece models cannot be read",
                               "libsentencepiece0");
}

template <typename T>
void Take(size_t count, absl::string_view* from, std::vector<T>* values) {
  values->resize(count);
  if (count == 0) return;  // memcpy takes no null
  std::memcpy(values->data(), from->data(), count * sizeof(T));
  from->remove_prefix(count * sizeof(T));
}

// The program has read untrusted bytes, so its answer is checked.
bool Parse(absl::string_view answer,
           absl::Span<const SentencePieceHelper::Stretch> stretches,
           SentencePieceHelper::Encoded* encoded) {
  const size_t counts_bytes = stretches.size() * sizeof(uint32_t);
  constexpr size_t kIdBytes = sizeof(int32_t) + sizeof(uint32_t);
  if (answer.size() < counts_bytes ||
      (answer.size() - counts_bytes) % kIdBytes != 0) {
    return false;
  }
  const size_t ids = (answer.size() - counts_bytes) / kIdBytes;
  Take(stretches.size(), &answer, &encoded->counts);
  Take(ids, &answer, &encoded->ids);
  Take(ids, &answer, &encoded->ends);
  uint64_t id = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const uint64_t end = id + encoded->counts[i];
    if (end > ids) return false;
    uint32_t last = 0;
    for (; id < end; ++id) {
      const auto most = static_cast<uint32_t>(stretches[i].text.size());
      encoded->ends[id] = last = std::clamp(encoded->ends[id], last, most);
    }
  }
  return id == ids;
}

void AppendRequest(absl::Span<const SentencePieceHelper::Stretch> stretches,
                   std::string* request) {
  request->clear();
  absl::StrAppend(
      request,
      GetBytes(EncodeRequest{static_cast<uint32_t>(stretches.size())}));
  for (const SentencePieceHelper::Stretch& stretch : stretches) {
    absl::StrAppend(request, GetBytes(sentencepiece_helper::Stretch{
                                 static_cast<uint32_t>(stretch.text.size()),
                                 stretch.continued ? 1u : 0u}));
  }
  for (const SentencePieceHelper::Stretch& stretch : stretches) {
    absl::StrAppend(request, stretch.text);
  }
}

}  // namespace

// A text of a caller, until it is encoded.
struct SentencePieceHelper::Waiting : HelperPool::Job {
  absl::Span<const Stretch> stretches;
  Encoded* encoded = nullptr;
};

SentencePieceHelper::SentencePieceHelper(std::string model, bool with_continued,
                                         absl::Duration patience)
    : model_(std::move(model)),
      with_continued_(with_continued),
      patience_(patience),
      holder_(
          {.name = "libsentencepiece, given the model,",
           .libraries = NoLibrary(),
           .input_fault =
               [](absl::string_view message) {
                 return absl::InvalidArgumentError(
                     absl::StrCat("damaged SentencePiece model: ", message));
               },
           .patience = patience,
           .prepare = [this](HelperProcess* holder) { return Load(holder); }},
          [] {
            return StartHelper({.name = "ballast-sentencepiece",
                                .image = kHelperImage,
                                .bytes = kHelperImageBytes});
          }),
      encoders_({.helper = {.name = "libsentencepiece",
                            .libraries = NoLibrary(),
                            .input_fault = DataFaultError,
                            .patience = patience},
                 .launch = [this] { return Fork(); },
                 .ask = AskFor,
                 .is_fault = IsDataFault,
                 .processes = std::numeric_limits<size_t>::max(),
                 .most_jobs = 1}) {}

absl::StatusOr<std::unique_ptr<SentencePieceHelper>> SentencePieceHelper::Start(
    std::string model, bool with_continued, absl::Duration patience) {
  auto helper = absl::WrapUnique(
      new SentencePieceHelper(std::move(model), with_continued, patience));
  MutexLock lock(&helper->mutex_);
  BALLAST_RETURN_IF_ERROR(helper->holder_.Ask([] { return absl::OkStatus(); }));
  return helper;
}

absl::Status SentencePieceHelper::Load(HelperProcess* holder) const {
  const LoadRequest request = {with_continued_ ? 1u : 0u};
  uint32_t kind = 0;
  std::string reason;
  BALLAST_RETURN_IF_ERROR(
      holder->Send(sentencepiece_helper::kLoad, {GetBytes(request), model_}));
  BALLAST_RETURN_IF_ERROR(holder->Receive(kMaxReasonBytes, &kind, &reason));
  if (kind == sentencepiece_helper::kDone) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("not a SentencePiece model: ", reason));
}

absl::StatusOr<HelperChild> SentencePieceHelper::Fork() const {
  MutexLock lock(&mutex_);
  HelperChannel channel;
  HelperProcess* const holder = &holder_;
  const auto fork = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(channel, MakeHelperChannel());
    uint32_t kind = 0;
    std::string answer;
    BALLAST_RETURN_IF_ERROR(
        holder->Send(sentencepiece_helper::kFork, {},
                     {channel.socket.get(), channel.lifeline.get()}));
    BALLAST_RETURN_IF_ERROR(holder->Receive(kMaxReasonBytes, &kind, &answer));
    int32_t process = -1;
    if (kind != sentencepiece_helper::kDone ||
        answer.size() != sizeof(process)) {
      return absl::UnavailableError(
          absl::StrCat("a process for SentencePiece cannot fork: ", answer));
    }
    std::memcpy(&process, answer.data(), sizeof(process));
    channel.ours.process = process;
    return TieHelper(process, channel.lifeline);
  };
  const absl::Status status = holder->Ask(fork);
  // The model was loaded before: whatever ends its process now is no fault of
  // the text.
  if (absl::IsInvalidArgument(status)) {
    return absl::UnavailableError(status.message());
  }
  BALLAST_RETURN_IF_ERROR(status);
  return std::move(channel.ours);
}

absl::Status SentencePieceHelper::Encode(absl::Span<const Stretch> stretches,
                                         Encoded* encoded) const {
  uint64_t bytes = 0;
  for (const Stretch& stretch : stretches) bytes += stretch.text.size();
  if (bytes > kMaxRequestText) {
    return DataFaultError(absl::StrCat(
        "text of ", bytes, " bytes, wanted at most ", kMaxRequestText));
  }
  Waiting text;
  text.stretches = stretches;
  text.encoded = encoded;
  HelperPool::Job* const job = &text;
  encoders_.Run({&job, 1});
  return text.status;
}

absl::Status SentencePieceHelper::AskFor(
    HelperPool::Worker* worker, absl::Span<HelperPool::Job* const> jobs) {
  const auto* const text = static_cast<const Waiting*>(jobs[0]);
  HelperProcess* const process = worker->helper.get();
  AppendRequest(text->stretches, &worker->request);
  return process->Ask([&]() -> absl::Status {
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(
        process->Send(sentencepiece_helper::kEncode, {worker->request}));
    BALLAST_RETURN_IF_ERROR(
        process->Receive(kMaxAnswerBytes, &kind, &worker->answer));
    if (kind != sentencepiece_helper::kDone) {
      return DataFaultError(absl::StrCat("SentencePiece: ", worker->answer));
    }
    if (Parse(worker->answer, text->stretches, text->encoded)) {
      return absl::OkStatus();
    }
    process->Stop(HelperEnd::kAnswer);
    return DataFaultError(
        "SentencePiece: an answer that contradicts itself; is the model "
        "damaged?");
  });
}

namespace {

// The parts of a SentencePiece model that the server itself needs.
struct SentencePieceModel {
  enum class Kind : uint8_t {
    kText,         // matched by their pieces
    kControl,      // never matched in a text by the library
    kUserDefined,  // matched before all others
    kUnknown,
    kByte,  // a byte of a character that no piece has
  };
  struct Piece {
    Kind kind = Kind::kText;
    // The text of the piece, with real spaces; for kByte the byte.
    std::string text;
  };
  std::vector<Piece> pieces;  // by id
  // True if the library prefixes a text with a space.
  bool adds_dummy_prefix = true;
  // -1 if the model has none.
  int32_t eos_id = -1;
  int32_t pad_id = -1;
};

using Kind = SentencePieceModel::Kind;
using sentencepiece::ModelFile;

// U+2581, which represents a space in pieces.
constexpr absl::string_view kSpace = "\xE2\x96\x81";

Kind GetKind(ModelFile::Piece::Type type) {
  switch (type) {
    case ModelFile::Piece::UNKNOWN:
      return Kind::kUnknown;
    case ModelFile::Piece::CONTROL:
      return Kind::kControl;
    case ModelFile::Piece::USER_DEFINED:
      return Kind::kUserDefined;
    case ModelFile::Piece::BYTE:
      return Kind::kByte;
    case ModelFile::Piece::NORMAL:
    case ModelFile::Piece::UNUSED:
      break;
  }
  return Kind::kText;
}

// The byte named by a piece such as "<0x0A>".
std::optional<char> GetByte(absl::string_view piece) {
  uint32_t byte = 0;
  if (piece.size() != 6 || !absl::ConsumePrefix(&piece, "<0x") ||
      !absl::ConsumeSuffix(&piece, ">") || !absl::SimpleHexAtoi(piece, &byte) ||
      byte > 255) {
    return std::nullopt;
  }
  return static_cast<char>(byte);
}

absl::StatusOr<SentencePieceModel::Piece> ReadPiece(
    const ModelFile::Piece& piece) {
  SentencePieceModel::Piece read;
  read.kind = GetKind(piece.type());
  if (read.kind == Kind::kByte) {
    const std::optional<char> byte = GetByte(piece.piece());
    if (!byte) {
      return absl::InvalidArgumentError(
          "is of type BYTE and not spelled like <0x0A>");
    }
    read.text = std::string(1, *byte);
  } else {
    read.text = absl::StrReplaceAll(piece.piece(), {{kSpace, " "}});
  }
  return read;
}

// `id` if the model has it, else -1.
int32_t IdOrNone(int32_t id, const SentencePieceModel& model) {
  return id >= 0 && static_cast<size_t>(id) < model.pieces.size() ? id : -1;
}

// `file` is the content of a .model file. Errors: INVALID_ARGUMENT (not such a
// file; an unsupported setting, with its key).
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view file) {
  ModelFile parsed;
  if (!parsed.ParseFromArray(file.data(), static_cast<int>(file.size())) ||
      parsed.pieces().empty()) {
    return absl::InvalidArgumentError(
        "neither a tokenizer.json nor a SentencePiece model: damaged, or "
        "without pieces");
  }
  if (parsed.trainer().treat_whitespace_as_suffix()) {
    return absl::InvalidArgumentError(
        "trainer_spec.treat_whitespace_as_suffix: true is not supported; "
        "wanted a model with its spaces before the words");
  }
  SentencePieceModel model;
  model.pieces.reserve(parsed.pieces().size());
  for (const ModelFile::Piece& piece : parsed.pieces()) {
    absl::StatusOr<SentencePieceModel::Piece> read = ReadPiece(piece);
    if (!read.ok()) {
      return Annotate(read.status(),
                      absl::StrCat("piece ", model.pieces.size()));
    }
    model.pieces.push_back(*std::move(read));
  }
  model.adds_dummy_prefix = parsed.normalizer().add_dummy_prefix();
  model.eos_id = IdOrNone(parsed.trainer().eos_id(), model);
  model.pad_id = IdOrNone(parsed.trainer().pad_id(), model);
  return model;
}

using Kind = SentencePieceModel::Kind;

// Increase whenever the same file yields different ids.
constexpr int kVersion = 1;

// A part of a text: a symbol that was matched first, or the next stretch that
// the library encodes.
struct Part {
  int32_t symbol;  // -1: a stretch
  size_t begin;
  size_t end;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  struct Parts {
    SentencePieceModel model;
    AddedTokenMatcher control;       // matched before the library runs
    AddedTokenMatcher user_defined;  // matched by the library itself
    absl::flat_hash_map<std::string, int32_t> symbols;
    std::unique_ptr<const SentencePieceHelper> helper;
    std::string digest;
  };

  explicit SentencePieceTokenizer(Parts parts) : parts_(std::move(parts)) {}

  absl::Status EncodeWithEnds(absl::string_view text, std::vector<int32_t>* ids,
                              std::vector<size_t>* ends) const override {
    return Encode(text, /*is_first=*/true, ids, ends);
  }

  absl::Status EncodeContinued(absl::string_view text,
                               std::vector<int32_t>* ids,
                               std::vector<size_t>* ends) const override {
    return Encode(text, /*is_first=*/false, ids, ends);
  }

  absl::Status Decode(absl::Span<const int32_t> ids,
                      std::string* text) const override {
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= parts_.model.pieces.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("id ", id, " is not a piece of the model"));
      }
      absl::StrAppend(text, parts_.model.pieces[id].text);
    }
    return absl::OkStatus();
  }

  std::optional<int32_t> SpecialTokenId(
      absl::string_view content) const override {
    const auto found = parts_.symbols.find(content);
    if (found == parts_.symbols.end()) return std::nullopt;
    return found->second;
  }

  std::optional<ModelIds> model_ids() const override {
    return ModelIds{parts_.model.eos_id, parts_.model.pad_id};
  }

  std::string digest() const override { return parts_.digest; }

 private:
  absl::Status Encode(absl::string_view text, bool is_first,
                      std::vector<int32_t>* ids,
                      std::vector<size_t>* ends) const {
    BALLAST_RETURN_IF_ERROR(CheckUtf8(text));
    std::vector<Part> found;
    std::vector<SentencePieceHelper::Stretch> stretches;
    BALLAST_RETURN_IF_ERROR(Cut(text, is_first, &found, &stretches));
    SentencePieceHelper::Encoded encoded;
    if (!stretches.empty()) {
      BALLAST_RETURN_IF_ERROR(parts_.helper->Encode(stretches, &encoded));
    }
    size_t stretch = 0;
    size_t from = 0;
    for (const Part& part : found) {
      if (part.symbol >= 0) {
        ids->push_back(part.symbol);
        if (ends != nullptr) ends->push_back(part.end);
        continue;
      }
      const size_t to = from + encoded.counts[stretch++];
      BALLAST_RETURN_IF_ERROR(AddIds(encoded, from, to, part, ids, ends));
      from = to;
    }
    return absl::OkStatus();
  }

  absl::Status Cut(absl::string_view text, bool is_first,
                   std::vector<Part>* found,
                   std::vector<SentencePieceHelper::Stretch>* stretches) const {
    RegexScratch scratch;
    BALLAST_RETURN_IF_ERROR(parts_.control.Split(
        text, &scratch, [&](int32_t id, size_t begin, size_t end) {
          found->push_back({id, begin, end});
          return absl::OkStatus();
        }));
    for (const Part& part : *found) {
      if (part.symbol >= 0) continue;
      const absl::string_view stretch =
          text.substr(part.begin, part.end - part.begin);
      BALLAST_ASSIGN_OR_RETURN(const bool is_prefixed,
                               is_first&& part.begin == 0
                                   ? TakesPrefix(stretch, &scratch)
                                   : absl::StatusOr<bool>(false));
      stretches->push_back(
          {stretch, parts_.model.adds_dummy_prefix && !is_prefixed});
    }
    return absl::OkStatus();
  }

  // True if the model's space precedes a text: the text starts with no symbol.
  absl::StatusOr<bool> TakesPrefix(absl::string_view text,
                                   RegexScratch* scratch) const {
    bool takes = true;
    // Stops after the first piece.
    const absl::Status status = parts_.user_defined.Split(
        text, scratch, [&](int32_t id, size_t, size_t) {
          takes = id < 0;
          return absl::CancelledError();
        });
    if (!status.ok() && !absl::IsCancelled(status)) return status;
    return takes;
  }

  absl::Status AddIds(const SentencePieceHelper::Encoded& encoded, size_t from,
                      size_t to, const Part& part, std::vector<int32_t>* ids,
                      std::vector<size_t>* ends) const {
    const std::vector<SentencePieceModel::Piece>& pieces = parts_.model.pieces;
    size_t last = part.begin;
    for (size_t i = from; i < to; ++i) {
      const int32_t id = encoded.ids[i];
      if (id < 0 || static_cast<size_t>(id) >= pieces.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "SentencePiece: id ", id, " of ", pieces.size(), " pieces"));
      }
      ids->push_back(id);
      if (ends == nullptr) continue;
      size_t end = part.begin + encoded.ends[i];
      // The library attributes a whole character to its last byte.
      if (end <= last && pieces[id].kind == Kind::kByte) {
        end = std::min(last + 1, EndOfCharacter(encoded, i, to) + part.begin);
      }
      last = std::max(last, end);
      ends->push_back(last);
    }
    return absl::OkStatus();
  }

  // The end, in the stretch, of the character that byte `i` belongs to.
  size_t EndOfCharacter(const SentencePieceHelper::Encoded& encoded, size_t i,
                        size_t to) const {
    size_t next = i + 1;
    while (next < to && encoded.ends[next] == encoded.ends[i]) ++next;
    return encoded.ends[std::min(next, to - 1)];
  }

  const Parts parts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string file) {
  BALLAST_ASSIGN_OR_RETURN(SentencePieceModel model,
                           ParseSentencePieceModel(file));
  std::vector<AddedToken> control;
  std::vector<AddedToken> user_defined;
  absl::flat_hash_map<std::string, int32_t> symbols;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    const bool is_symbol = piece.kind == Kind::kControl ||
                           piece.kind == Kind::kUserDefined ||
                           piece.kind == Kind::kUnknown;
    if (!is_symbol || piece.text.empty()) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = piece.text;
    symbols.emplace(token.content, token.id);
    (piece.kind == Kind::kUserDefined ? user_defined : control)
        .push_back(std::move(token));
  }
  BALLAST_ASSIGN_OR_RETURN(AddedTokenMatcher found_first,
                           AddedTokenMatcher::Create(std::move(control)));
  BALLAST_ASSIGN_OR_RETURN(AddedTokenMatcher found_by_library,
                           AddedTokenMatcher::Create(std::move(user_defined)));
  const XXH128_hash_t hash = XXH3_128bits(file.data(), file.size());
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<const SentencePieceHelper> helper,
      SentencePieceHelper::Start(std::move(file), model.adds_dummy_prefix));
  return std::make_unique<SentencePieceTokenizer>(SentencePieceTokenizer::Parts{
      std::move(model), std::move(found_first), std::move(found_by_library),
      std::move(symbols), std::move(helper),
      absl::StrCat("sentencepiece-", kVersion, "-",
                   absl::StrFormat("%016x%016x", hash.high64, hash.low64))});
}

}  // namespace ballast
