#include "server/command/draw/draw_sample.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/command/draw/draw_picture.h"
#include "server/command/draw/prose.h"
#include "server/command/draw/random.h"
#include "server/command/draw/receipt.h"

namespace ballast {

Passage MakePassage(Random* random) {
  const size_t length = random->Lognormal(800, 0.8, 60, 3900);
  // Limit of the trailing sentences that a question asks to repeat.
  constexpr size_t kCopied = 8;
  std::vector<Statement> statements;
  Passage passage;
  while (passage.text.size() < length) {
    statements.push_back(MakeStatement(random, /*foreign=*/true));
    absl::StrAppend(&passage.text, passage.text.empty() ? "" : " ",
                    statements.back().sentence);
  }
  const size_t count = statements.size();
  const size_t copied = count < kCopied ? count : kCopied;
  std::string copy;
  for (size_t i = count - copied; i < count; ++i) {
    absl::StrAppend(&copy, copy.empty() ? "" : " ", statements[i].sentence);
  }
  passage.questions = {
      statements[random->Below(static_cast<uint32_t>(count))].question,
      {copied == 1 ? "Repeat the last sentence."
                   : absl::StrCat("Repeat the last ", copied, " sentences."),
       copy},
      {"How many sentences does the text have?",
       count == 1 ? "One." : absl::StrCat(count, ".")}};
  return passage;
}

namespace {

constexpr int kMaxTurns = 3;
// A longer answer appears only as the first of a conversation.
constexpr size_t kShortAnswer = 120;

int ImageCount(Preset preset, Random* random) {
  if (preset == Preset::kText || preset == Preset::kSpeech) return 0;
  const uint32_t draw = random->Below(100);
  if (preset == Preset::kReceipts) return draw < 88 ? 1 : 2;
  return draw < 15 ? 0 : draw < 65 ? 1 : draw < 85 ? 2 : draw < 95 ? 3 : 4;
}

Picture DrawPicture(Preset preset, Random* random) {
  const uint32_t draw = random->Below(100);
  if (preset == Preset::kReceipts || draw < 35) return DrawReceipt(random);
  if (draw < 60) return DrawTextPage(random);
  if (draw < 75) return DrawTable(random);
  return DrawScene(random);
}

FileFormat PickFormat(Preset preset, Random* random) {
  const uint32_t draw = random->Below(100);
  if (preset == Preset::kReceipts || draw < 80) return FileFormat::kJpeg;
  return draw < 92 ? FileFormat::kPng : FileFormat::kWebp;
}

// Removes a question from the list, which must not be empty, and returns it.
// The first is the natural one to ask.
Question TakeQuestion(std::vector<Question>* questions, Random* random) {
  const uint32_t count = static_cast<uint32_t>(questions->size());
  const uint32_t index = random->Chance(40) ? 0 : random->Below(count);
  Question taken = (*questions)[index];
  questions->erase(questions->begin() + index);
  return taken;
}

void DropLongAnswers(std::vector<std::vector<Question>>* topics) {
  for (std::vector<Question>& questions : *topics) {
    questions.erase(std::remove_if(questions.begin(), questions.end(),
                                   [](const Question& question) {
                                     return question.answer.size() >
                                            kShortAnswer;
                                   }),
                    questions.end());
  }
}

// The text of the first turn with the image marks before or after it.
std::string PlaceMarks(size_t images, const std::string& words,
                       Random* random) {
  std::string marks;
  for (size_t i = 0; i < images; ++i) {
    absl::StrAppend(&marks, i == 0 ? "" : "\n", "<image>");
  }
  if (marks.empty()) return words;
  return random->Chance(80) ? absl::StrCat(marks, "\n", words)
                            : absl::StrCat(words, "\n", marks);
}

using Turns = std::vector<std::pair<std::string, std::string>>;

// Generates the conversation. `topics` are the questions about each picture, or
// about the passage; `opening` precedes the first question.
Turns Converse(size_t images, std::vector<std::vector<Question>> topics,
               const std::string& opening, Random* random) {
  Turns turns;
  if (random->Chance(10)) {
    turns.emplace_back("system", "Answer from what is shown, briefly.");
  }
  const int pairs = random->Between(1, kMaxTurns);
  for (int pair = 0; pair < pairs; ++pair) {
    const uint32_t topic = random->Below(static_cast<uint32_t>(topics.size()));
    if (topics[topic].empty()) break;
    const Question asked = TakeQuestion(&topics[topic], random);
    std::string words = asked.question;
    if (images > 1) words = absl::StrCat("Image ", topic + 1, ": ", words);
    if (pair == 0) words = PlaceMarks(images, opening + words, random);
    turns.emplace_back("human", words);
    turns.emplace_back("gpt", asked.answer);
    if (pair == 0) DropLongAnswers(&topics);
  }
  return turns;
}

std::string WriteConversation(uint64_t number, const Turns& turns) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [from, value] : turns) {
    list.push_back({{"from", from}, {"value", value}});
  }
  const nlohmann::ordered_json json = {{"id", absl::StrFormat("%06d", number)},
                                       {"conversations", list}};
  return json.dump();
}

}  // namespace

absl::StatusOr<Preset> ParsePreset(absl::string_view name) {
  if (name == "receipts") return Preset::kReceipts;
  if (name == "mixed") return Preset::kMixed;
  if (name == "text") return Preset::kText;
  if (name == "speech") return Preset::kSpeech;
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown preset '", name, "'; wanted receipts, mixed, text or speech"));
}

absl::StatusOr<DrawnSample> DrawSample(Preset preset, uint64_t seed,
                                       uint64_t number) {
  Random random(seed, number);
  DrawnSample sample;
  std::vector<std::vector<Question>> topics;
  std::string opening;
  const int images = ImageCount(preset, &random);
  for (int i = 0; i < images; ++i) {
    Picture picture = DrawPicture(preset, &random);
    DrawnImage image;
    image.format = PickFormat(preset, &random);
    image.width = picture.canvas.width();
    image.height = picture.canvas.height();
    BALLAST_ASSIGN_OR_RETURN(
        image.bytes, EncodeImage(picture.canvas.pixels(), image.width,
                                 image.height, image.format, /*quality=*/85));
    sample.images.push_back(std::move(image));
    topics.push_back(std::move(picture.questions));
  }
  if (preset == Preset::kSpeech) {
    const int clips = random.Chance(20) ? 2 : 1;
    for (int i = 0; i < clips; ++i) {
      Clip audio = DrawClip(&random);
      absl::StrAppend(&opening, "<audio>\n");
      sample.clips.push_back(std::move(audio.wav));
      if (i == 0) topics.push_back(std::move(audio.questions));
    }
  } else if (images == 0) {
    Passage passage = MakePassage(&random);
    opening = absl::StrCat(passage.text, "\n\n");
    topics.push_back(std::move(passage.questions));
  }
  sample.turns =
      Converse(sample.images.size(), std::move(topics), opening, &random);
  sample.conversation = WriteConversation(number, sample.turns);
  return sample;
}

namespace {

constexpr uint32_t kRate = 16000;

void AddLittle(uint64_t value, int bytes, std::string* to) {
  for (int i = 0; i < bytes; ++i)
    to->push_back(static_cast<char>(value >> 8 * i));
}

}  // namespace

std::string WriteWav(const std::vector<int16_t>& samples) {
  std::string wav = "RIFF";
  AddLittle(36 + 2 * samples.size(), 4, &wav);
  wav += "WAVEfmt ";
  AddLittle(16, 4, &wav);
  AddLittle(1, 2, &wav);  // PCM
  AddLittle(1, 2, &wav);
  AddLittle(kRate, 4, &wav);
  AddLittle(2 * kRate, 4, &wav);
  AddLittle(2, 2, &wav);
  AddLittle(16, 2, &wav);
  wav += "data";
  AddLittle(2 * samples.size(), 4, &wav);
  for (const int16_t sample : samples) {
    AddLittle(static_cast<uint16_t>(sample), 2, &wav);
  }
  return wav;
}

namespace {

// Parabolas, which look like a sine. The period is 65536.
int Wave(uint32_t phase) {
  const int p = static_cast<int>(phase & 0xFFFF) - 32768;
  return p * (32768 - std::abs(p)) >> 13;
}

}  // namespace

Clip DrawClip(Random* random) {
  const int all = random->Lognormal(6 * kRate, 0.7, kRate / 2, 30 * kRate);
  const int tones = random->Between(1, 5);
  std::vector<int16_t> samples;
  std::vector<int> pitches;
  for (int tone = 0; tone < tones; ++tone) {
    // Hertz, not near those of the tone before.
    int pitch = random->Between(2, 30) * 100;
    if (!pitches.empty() && pitches.back() == pitch) pitch += 100;
    pitches.push_back(pitch);
    const uint32_t step = static_cast<uint32_t>(pitch) * 65536u / kRate;
    const int length = all / tones;
    const int sounding = length - length / 5;
    for (int i = 0; i < length; ++i) {
      const int loud =
          i < sounding ? Wave(static_cast<uint32_t>(i) * step) / 3 : 0;
      samples.push_back(
          static_cast<int16_t>(loud + random->Between(-200, 200)));
    }
  }
  Clip audio;
  audio.wav = WriteWav(samples);
  audio.questions.push_back(
      {"How many tones are there?", absl::StrCat(tones, ".")});
  if (tones > 1) {
    audio.questions.push_back(
        {"Is the last tone higher than the first?",
         pitches.back() > pitches.front() ? "Yes." : "No."});
  }
  return audio;
}

}  // namespace ballast
