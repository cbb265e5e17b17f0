// Expected samples are written by hand from the formats' own descriptions.
#include "server/data/form/form.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/data/form/forms.h"
#include "server/data/form/unread.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

v1::Source::Form Named(const std::string& name) {
  v1::Source::Form form;
  form.set_name(name);
  return form;
}

absl::StatusOr<FormSample> Read(const v1::Source::Form& form,
                                RecipeRecord record,
                                std::vector<std::string> fields = {}) {
  const auto reader = FormReader::Create(form, std::move(fields));
  if (!reader.ok()) return reader.status();
  return reader->Read(record);
}

absl::StatusOr<FormSample> ReadLine(const v1::Source::Form& form,
                                    const std::string& json) {
  RecipeRecord record;
  record.text = json;
  return Read(form, std::move(record));
}

// Roles and texts of a conversation, and images, or the fault.
std::string Turns(const absl::StatusOr<FormSample>& made) {
  if (!made.ok()) return std::string(made.status().message());
  std::string all;
  if (made->sample.is_document) {
    all = absl::StrCat("document: ", made->sample.text);
  } else {
    const Json json = Json::parse(made->sample.text);
    for (const char* key : {"messages", "conversations", "conversation"}) {
      for (const Json& turn : json.value(key, Json::array())) {
        const bool is_share = turn.contains("from");
        std::string role = turn[is_share ? "from" : "role"];
        if (role == "human") role = "user";
        if (role == "gpt") role = "assistant";
        const Json& said = turn[is_share ? "value" : "content"];
        absl::StrAppend(
            &all, all.empty() ? "" : " | ", role, ": ",
            said.is_string() ? said.get<std::string>() : said.dump());
      }
    }
  }
  for (const CookedSample::Medium& image : made->sample.images) {
    if (const auto* path = std::get_if<std::string>(&image)) {
      absl::StrAppend(&all, " [", *path, "]");
    } else {
      absl::StrAppend(&all, " [#", std::get<uint32_t>(image), "]");
    }
  }
  return all;
}

// 48 bytes that begin as a JPEG does: 64 characters of base64.
std::string Jpeg() { return "\xff\xd8\xff" + std::string(45, 'x'); }

TEST(FormTest, ReadsEachFormOfTheFolder) {
  struct Case {
    const char* form;
    const char* json;
    const char* made;
  };
  const Case kCases[] = {
      {"chat",
       R"({"image": "a.jpg", "conversations": [{"from": "human", "value":
          "<image>\nWhat?"}, {"from": "gpt", "value": "Red."}], "system": "Be brief."})",
       "system: Be brief. | user: <image>\nWhat? | assistant: Red. [a.jpg]"},
      {"chat",
       R"({"image": {"<image_00>": "a.jpg", "<image_01>": "b.jpg"}, "conversations":
          [{"role": "user", "content": "<image_01> or <image_00>?"},
           {"role": "assistant", "content": "Red."}]})",
       "user: <image> or <image>? | assistant: Red. [b.jpg] [a.jpg]"},
      {"chat",
       R"({"images": ["a.jpg", "b.jpg"], "conversation":
          [{"role": "<|User|>", "content": "<image_placeholder><image_placeholder>Both?"},
           {"role": "<|Assistant|>", "content": "Red."}]})",
       "user: <image><image>Both? | assistant: Red. [a.jpg] [b.jpg]"},
      {"chat",
       R"({"images": ["a.jpg", "b.jpg"], "messages":
          [{"role": "user", "content": "<image_2> and <image_1>"},
           {"role": "assistant", "content": "Red."}]})",
       "user: <image> and <image> | assistant: Red. [b.jpg] [a.jpg]"},
      // Qwen-VL's: the texts name the images.
      {"chat",
       R"({"conversations": [{"from": "user", "value":
          "Picture 1: <img>a/b.jpg</img>\nPicture 2: <img>c.png</img>\nBoth?"},
          {"from": "assistant", "value": "Red, as <img> says."}]})",
       "user: Picture 1: <image>\nPicture 2: <image>\nBoth? | assistant: Red, "
       "as <img> says. [a/b.jpg] [c.png]"},
      // DeepSeek-VL's: the turns have the images.
      {"chat",
       R"({"conversation": [{"role": "User", "content": "<image_placeholder>A?",
          "images": ["a.jpg"]}, {"role": "Assistant", "content": "Red."},
          {"role": "User", "content": "<image_placeholder>B?",
          "images": ["b.jpg"]}, {"role": "Assistant", "content": "Blue."}]})",
       "user: <image>A? | assistant: Red. | user: <image>B? | assistant: Blue. "
       "[a.jpg] [b.jpg]"},
      // The Cauldron's, as lines: pairs have no marks.
      {"chat",
       R"({"images": ["a.jpg"], "texts": [{"user": "What?", "assistant": "Red.",
          "source": "x"}]})",
       "user: <image>What? | assistant: Red. [a.jpg]"},
      // VQAv2's and COCO's.
      {"question_answer",
       R"({"image": "a.jpg", "question": "What?", "answers":
          [{"answer": "red", "answer_confidence": "yes"}, {"answer": "pink"}]})",
       "user: <image>What? | assistant: red [a.jpg]"},
      {"question_answer",
       R"({"image": "a.jpg", "question": "What?", "answers": [{"answer": "pink"}],
          "multiple_choice_answer": "red"})",
       "user: <image>What? | assistant: red [a.jpg]"},
      {"question_answer",
       R"({"image": "a.jpg", "question": "Which?\nA. cat\nB. dog", "answer": "B",
          "choices": ["cat", "dog"], "options": "[]"})",
       "user: <image>Which?\nA. cat\nB. dog | assistant: B [a.jpg]"},
      {"caption", R"({"image": "a.jpg", "sentences": [{"raw": "one"}]})",
       "document: <image>one [a.jpg]"},
      {"alpaca",
       R"({"instruction": "Describe", "context": "it", "response": "Red."})",
       "user: Describe\nit | assistant: Red."},
      {"alpaca",
       R"({"instruction": "Describe", "input": "it", "output": "Red.", "images": ["a.jpg"],
          "history": [["Q", "A"]]})",
       "user: <image>Q | assistant: A | user: Describe\nit | assistant: Red. "
       "[a.jpg]"},
      {"question_answer",
       R"({"image": "a.jpg", "question": "What?", "answers": ["Red", "Blue"]})",
       "user: <image>What? | assistant: Red [a.jpg]"},
      {"question_answer",
       R"({"query": "<image>Q", "response": 5, "images": [{"path": "a.jpg", "bytes": null}]})",
       "user: <image>Q | assistant: 5 [a.jpg]"},
      {"question_answer",
       R"({"prompt": [{"role": "user", "content": "<image>Q"}], "images": ["a.jpg"],
          "completion": [{"role": "assistant", "content": "Red"}]})",
       "user: <image>Q | assistant: Red [a.jpg]"},
      {"caption", R"({"file_name": "a.jpg", "text": "cap"})",
       "document: <image>cap [a.jpg]"},
      {"caption", R"({"image": "a.jpg", "captions": ["one", "two"]})",
       "document: <image>one [a.jpg]"},
  };
  for (const Case& each : kCases) {
    EXPECT_EQ(Turns(ReadLine(Named(each.form), each.json)), each.made)
        << each.json;
  }
}

TEST(FormTest, ReadsImagesInEverySpelling) {
  const std::string base64 = absl::Base64Escape(Jpeg());
  const std::pair<std::string, std::string> kSpellings[] = {
      {R"("a.jpg")", "[a.jpg]"},
      {R"({"bytes": null, "path": "a.jpg"})", "[a.jpg]"},
      {R"({"url": "a.jpg"})", "[a.jpg]"},
      {R"({"image_url": {"url": "a.jpg"}})", "[a.jpg]"},
      {Json(base64).dump(), "[#0]"},
      {Json("data:image/jpeg;base64," + base64).dump(), "[#0]"},
      {R"({"path": "a.jpg", "bytes": ")" + base64 + R"("})", "[#0]"},
  };
  for (const auto& [value, image] : kSpellings) {
    const auto made =
        ReadLine(Named("caption"),
                 absl::StrCat(R"({"text": "t", "image": )", value, "}"));
    EXPECT_EQ(Turns(made), absl::StrCat("document: <image>t ", image)) << value;
    if (image == "[#0]") EXPECT_THAT(made->media, ElementsAre(Jpeg()));
    const auto part = ReadLine(
        Named("chat"),
        absl::StrCat(R"({"messages": [{"role": "user", "content": [{"type":
            "image", "image": )",
                     value, R"(}]}, {"role": "assistant", "content": "A"}]})"));
    EXPECT_THAT(Turns(part), HasSubstr(image)) << value;
  }
}

// What the format's own reading takes as it is stays as it is, byte by byte.
TEST(FormTest, PassesOnWhatTheFormatReadsItself) {
  const std::string own =
      R"({"id": 1, "image": "a.jpg", "conversations": [{"from": "human",  "value":
      "<image>\nWhat \u00e9?"}, {"from": "gpt", "value": "1 < 2"}]})";
  const auto made = ReadLine(Named("chat"), own);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->sample.text, own);
  EXPECT_EQ(Turns(made).substr(Turns(made).size() - 7), "[a.jpg]");
  // Each of these is said otherwise, or by other keys.
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"human", "User"},
           {"<image>\\n", "<image_placeholder>"},
           {"\"id\": 1", "\"system\": \"S\""},
           {"\"from\": \"human\",", "\"from\": \"human\", \"weight\": 1,"}}) {
    std::string other = own;
    other.replace(other.find(from), from.size(), to);
    const auto written = ReadLine(Named("chat"), other);
    ASSERT_TRUE(written.ok()) << written.status() << other;
    EXPECT_THAT(written->sample.text, HasSubstr(R"({"messages":[{"role":")"));
    EXPECT_THAT(Turns(written), HasSubstr("[a.jpg]")) << other;
  }
}

// Calls of tools stand in place of a content (OpenAI's, ms-swift's sets).
TEST(FormTest, TurnsOfCallsNeedNoContent) {
  for (const char* content : {R"("content": null, )", ""}) {
    const auto made =
        ReadLine(Named("chat"),
                 absl::StrCat(R"({"messages": [{"role": "User", "content": "Q"},
            {"role": "assistant", )",
                              content, R"("tool_calls": [{"id": "1"}]},
            {"role": "tool", "tool_call_id": "1", "content": "sun"}]})"));
    ASSERT_TRUE(made.ok()) << made.status();
    const Json turns = Json::parse(made->sample.text)["messages"];
    EXPECT_FALSE(turns[1].contains("content"));
    EXPECT_EQ(turns[1]["tool_calls"], Json::parse(R"([{"id": "1"}])"));
  }
  EXPECT_THAT(Turns(ReadLine(Named("chat"), R"({"messages": [{"role": "User",
      "content": "Q"}, {"role": "assistant", "content": null}]})")),
              HasSubstr("a turn without a content"));
}

// Media are parts of the record, by number: none is copied.
TEST(FormTest, ReadsRowsAndMembers) {
  RecipeRecord row;
  row.kind = RecipeRecord::Kind::kRow;
  row.text = R"({"image": {"bytes": {"$ballast.media": 0}, "path": null},
      "question": {"en": "What?"}, "answers": ["Red"]})";
  row.parts = {{"image", 9, std::nullopt}};
  v1::Source::Form form;
  form.add_images("image");
  form.add_user("question.en");
  form.add_assistant("answers[0]");
  const auto made = Read(form, row);
  EXPECT_EQ(Turns(made), "user: <image>What? | assistant: Red [#0]");
  EXPECT_THAT(made->media, IsEmpty());

  RecipeRecord members;
  members.kind = RecipeRecord::Kind::kMembers;
  members.text = "000";
  members.parts = {{"jpg", 9, std::nullopt},
                   {"json", 9, R"({"caption": "A cat", "url": "http://x/y.jpg",
                       "similarity": NaN, "key": 123456789012345678901234})"}};
  EXPECT_EQ(Turns(Read(Named("caption"), members)),
            "document: <image>A cat [#0]");
  members.parts[1].bytes =
      R"([{"from": "human", "value": "<image>Q"}, {"from": "gpt", "value": "A"}])";
  EXPECT_EQ(Turns(Read(Named("chat"), members)),
            "user: <image>Q | assistant: A [#0]");
}

TEST(FormTest, AccountsForEveryKey) {
  const std::string base64 = absl::Base64Escape(Jpeg());
  const std::string kCulprits[] = {
      R"("label": false)",
      R"("kto_tag": false)",
      R"("objects": {"bbox": [[1, 2, 3, 4]]})",
      R"("depth_image": {"path": "d.png"})",
      absl::StrCat(R"("extra": ")", base64, R"(")"),
      R"("pixels3": [[[1, 2, 3]]])",
      R"("rejected": "No.")",
      R"("weight": 0)",
      R"("loss_mask": [0, 1])",
      R"("meta": {"second_picture": ["x", "y"]})",
  };
  v1::Source::Form form = Named("chat");
  for (const std::string& culprit : kCulprits) {
    const std::string json = absl::StrCat(
        R"({"messages": [{"role": "user", "content": "Q"},
            {"role": "assistant", "content": "A"}], )",
        culprit, "}");
    const std::string key =
        culprit.substr(1, culprit.find('"', 1) - 1) == "meta"
            ? "meta.second_picture"
            : culprit.substr(1, culprit.find('"', 1) - 1);
    const auto made = ReadLine(form, json);
    EXPECT_TRUE(IsDataFault(made.status())) << culprit;
    EXPECT_THAT(std::string(made.status().message()),
                AllOf(HasSubstr(absl::StrCat("key `", key)),
                      HasSubstr(absl::StrCat("form.ignore: ", key))));
    v1::Source::Form ignoring = form;
    ignoring.add_ignore(key);
    EXPECT_TRUE(ReadLine(ignoring, json).ok()) << culprit;
  }
  // Facts, true verdicts, and what says nothing.
  EXPECT_TRUE(ReadLine(form, R"({"messages": [{"role": "user", "content": "Q"},
      {"role": "assistant", "content": "A"}], "label": true, "weight": 1,
      "image_id": 5, "id": "x", "width": 9, "objects": null, "rejected": "",
      "mask": []})")
                  .ok());
}

// An answer chooses from options, and from a picture, that the question names.
TEST(FormTest, QuestionsHaveWhatTheirAnswersChooseFrom) {
  const std::string kCulprits[] = {
      R"("choices": ["cat", "dog"])", R"("options": "['cat', 'dog']")",
      R"("A": "cat", "B": "dog")", R"("image_id": 5)",
      R"("original_url": "https://x/a_o.jpg")"};
  for (const std::string& culprit : kCulprits) {
    const auto made =
        ReadLine(Named("question_answer"),
                 absl::StrCat(R"({"question": "Which?", "answer": "A", )",
                              culprit, "}"));
    EXPECT_TRUE(IsDataFault(made.status())) << culprit;
    const std::string key = culprit.substr(1, culprit.find('"', 1) - 1);
    EXPECT_THAT(std::string(made.status().message()),
                AllOf(HasSubstr(absl::StrCat("key `", key)),
                      HasSubstr(absl::StrCat("form.ignore: ", key))));
    EXPECT_EQ(GetBadKind(made.status()), kFormKeyUnread);
  }
}

// Maps of a picture are pictures of their own; its other names are not.
TEST(FormTest, RefusesPicturesBesideTheSamplesOwn) {
  const auto read = [](const char* key) {
    return ReadLine(Named("question_answer"),
                    absl::StrCat(R"({"image": "a/b.jpg", "question": "Q",
                        "answer": "A", )",
                                 key, "}"))
        .status();
  };
  EXPECT_FALSE(read(R"("depth": "d/b.png")").ok());
  EXPECT_FALSE(read(R"("image_b": "c.jpg")").ok());
  EXPECT_EQ(read(R"("image_name": "b.jpg", "depth": "deep", "normal": true)"),
            absl::OkStatus());
}

// Pages have an address; pictures without media have only that.
TEST(FormTest, AddressesOfPicturesAreNotText) {
  EXPECT_FALSE(ReadLine(Named("caption"),
                        R"({"url": "http://x/1", "text": "cap", "width": 9})")
                   .ok());
  EXPECT_TRUE(ReadLine(Named("caption"),
                       R"({"url": "http://x/1.html", "text": "page"})")
                  .ok());
}

TEST(FormTest, SaysWhatIsMissing) {
  EXPECT_THAT(Turns(ReadLine(Named("question_answer"),
                             R"({"question": "Q", "reply": "A"})")),
              AllOf(HasSubstr("form.assistant"), HasSubstr("`reply`")));
  v1::Source::Form form;
  form.add_user("q");
  form.add_assistant("a");
  EXPECT_THAT(Turns(ReadLine(form, R"({"q": "Q", "a": ["A", "B"]})")),
              HasSubstr("`a[0]`"));
  EXPECT_THAT(Turns(ReadLine(Named("chat"),
                             R"({"image": "a.jpg", "messages": [{"role": "user",
      "content": "Q"}, {"role": "assistant", "content": "A"}]})")),
              HasSubstr("<image>"));
}

TEST(FormTest, RefusesFormsThatSayNothing) {
  EXPECT_FALSE(FormReader::Create(Named("none_such"), {}).ok());
  EXPECT_FALSE(FormReader::Create(v1::Source::Form(), {}).ok());
  v1::Source::Form form;
  form.set_text("a..b");
  EXPECT_FALSE(FormReader::Create(form, {}).ok());
  form.set_text("a[x]");
  EXPECT_FALSE(FormReader::Create(form, {}).ok());
  form.set_text("a[0");
  EXPECT_FALSE(FormReader::Create(form, {}).ok());
  form.set_text("a");
  EXPECT_TRUE(FormReader::Create(form, {}).ok());
  form.add_messages("b");
  EXPECT_FALSE(FormReader::Create(form, {}).ok());
}

TEST(FormTest, KeysOfOnesOwnReplaceThoseOfTheName) {
  v1::Source::Form form = Named("chat");
  form.add_images("picture");
  const auto whole = CompleteForm(form);
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(whole->images(), ElementsAre("picture"));
  EXPECT_GT(whole->roles().user_size(), 0);
  EXPECT_GT(whole->marks().image_size(), 0);
  EXPECT_EQ(FormYaml(form), R"({name: "chat", images: "picture"})");
}

TEST(FormTest, FieldsTravelWithTheSample) {
  RecipeRecord record;
  record.text = R"({"messages": [{"role": "user", "content": "Q"},
      {"role": "assistant", "content": "A"}], "weight": 0.5})";
  const auto made = Read(Named("chat"), record, {"weight"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Json::parse(made->sample.text)["weight"], 0.5);
}

TEST(FormTest, ToolsAreNotLost) {
  const auto made = ReadLine(Named("chat"), R"({"messages": [{"role": "user",
      "content": "Q"}, {"role": "assistant", "content": "A"}],
      "tools": [{"name": "f"}]})");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Json::parse(made->sample.text)["tools"][0]["name"], "f");
}

// Each says something that a form does not read: none is passed over.
TEST(FormTest, NamesWhatItDoesNotRead) {
  struct Case {
    const char* form;
    const char* json;
    const char* fault;
  };
  const Case kCases[] = {
      // Another image under a key beside those that are read.
      {"chat",
       R"({"image": "b.jpg", "images": ["a.jpg"], "messages": [{"role": "user",
          "content": "<image>Q"}, {"role": "assistant", "content": "A"}]})",
       "form.ignore: image"},
      {"caption", R"({"image": "a.jpg", "image2": "b.jpg", "text": "t"})",
       "form.images: image2"},
      // Answers of pairs, and turns beside turns.
      {"chat",
       R"({"messages": [{"role": "user", "content": "Q"}], "chosen": "A"})",
       "form.assistant: chosen"},
      {"question_answer", R"({"prompt": "Q", "chosen": "A", "rejected": "B"})",
       "no value for form.assistant"},
      {"chat",
       R"({"messages": [{"role": "user", "content": "Q"}], "conversations":
          [{"from": "human", "value": "P"}]})",
       "form.ignore: conversations"},
      // Verdicts and weights of tables, which have texts alone.
      {"question_answer",
       R"({"question": "Q", "answer": "A", "label": "False"})",
       "form.ignore: label"},
      {"question_answer", R"({"question": "Q", "answer": "A", "weight": "0"})",
       "form.ignore: weight"},
      {"chat", R"({"texts": [{"user": "Q", "assistant": "A", "weight": 0}]})",
       "a pair of turns: key `weight`"},
      // Turns and parts.
      {"chat",
       R"({"messages": [{"role": "user", "content": "Q", "image": "a.jpg"}]})",
       "1 image and no mark in the turns"},
      {"chat",
       R"({"messages": [{"role": "user", "content": [{"type": "text",
          "text": "Q", "image": "a.jpg"}]}]})",
       "a part of type text: key `image`"},
      {"chat",
       R"({"messages": [{"role": "user", "content": [{"type": "image",
          "image": "a.jpg", "text": "Q"}]}]})",
       "`text` in a part of type image"},
      {"chat",
       R"({"messages": [{"role": "user", "content": [{"type": "video",
          "video": "a.mp4"}]}]})",
       "a part of type video"},
      {"chat",
       R"({"messages": [{"role": "user", "content": [{"type": "audio",
          "audio": "a.wav"}]}]})",
       "a part of type audio"},
      // Bounds and boxes.
      {"chat",
       R"({"video": "a.mp4", "video_start": 3, "messages": [{"role": "user",
          "content": "<video>Q"}, {"role": "assistant", "content": "A"}]})",
       "form.ignore: video_start"},
      {"question_answer",
       R"({"video": {"path": "a.mp4", "start": 3}, "question": "<video>Q",
          "answer": "A"})",
       "`start` beside a medium"},
      {"caption",
       R"({"image": {"path": "a.jpg", "bbox": [1, 2]}, "text": "t"})",
       "`bbox` beside a medium"},
      // Base64 that is cut or broken.
      {"caption", R"({"image": "data:image/png;base64,iVBOR*", "text": "t"})",
       "no base64"},
      {"caption", R"({"image": {"bytes": [137, 80]}, "text": "t"})",
       "a number"},
      // Numbers of marks.
      {"chat",
       R"({"images": ["a.jpg", "b.jpg"], "messages": [{"role": "user",
          "content": "<image_1>Q"}, {"role": "assistant", "content": "A"}]})",
       "marks of 1 of 2 images"},
      {"chat",
       R"({"images": ["a.jpg", "b.jpg"], "messages": [{"role": "user",
          "content": "<image_1><image_3>Q"}]})",
       "a mark of image 3, of 2"},
      {"chat",
       R"({"images": ["a.jpg", "b.jpg"], "messages": [{"role": "user",
          "content": "<image_1><image>Q"}]})",
       "wanted all of one kind"},
      {"question_answer",
       R"({"image": "a.jpg", "question": "<ImageHere>Q", "answer": "A"})",
       "form.marks.image: \"<ImageHere>\""},
  };
  for (const Case& each : kCases) {
    const auto made = ReadLine(Named(each.form), each.json);
    EXPECT_TRUE(IsDataFault(made.status())) << each.json << Turns(made);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(each.fault))
        << each.json;
  }
}

TEST(FormTest, PicturesUnderAKeyOfVideosAreFrames) {
  const auto made = ReadLine(Named("question_answer"),
                             R"({"video": ["1.jpg", "2.jpg"], "question":
      "<video>Q", "answer": "A"})");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->sample.videos.size(), 1);
  EXPECT_TRUE(made->sample.videos[0].is_list);
  EXPECT_EQ(made->sample.videos[0].parts.size(), 2);
}

TEST(FormTest, NamesOfItsOwnMediaAreNoOthers) {
  const auto made = ReadLine(Named("caption"),
                             R"({"image": "train/a.jpg", "image_name": "a.jpg",
      "image_url": "http://x/9.jpg", "text": "t"})");
  EXPECT_EQ(Turns(made), "document: <image>t [train/a.jpg]");
}

TEST(FormTest, WeightsOfTurnsTravel) {
  const auto made = ReadLine(Named("chat"), R"({"messages": [{"role": "user",
      "content": "Q"}, {"role": "assistant", "content": "A", "weight": 0}]})");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Json::parse(made->sample.text)["messages"][1]["weight"], 0);
}

TEST(FormTest, RefusesMembersThatAreNoJson) {
  for (const std::string bad :
       {"{\"caption\": \"R\xff\"}", "{\"caption\": ", "1, \"txt\": \"A\""}) {
    RecipeRecord record;
    record.kind = RecipeRecord::Kind::kMembers;
    record.parts = {{"json", bad.size(), bad}};
    const auto made = Read(Named("caption"), record);
    EXPECT_THAT(std::string(made.status().message()),
                ::testing::HasSubstr("member `json` is no JSON"));
  }
}

TEST(FormTest, ToolsOfAMemberTravel) {
  RecipeRecord record;
  record.kind = RecipeRecord::Kind::kMembers;
  record.parts = {{"json", 9, R"({"messages": [{"role": "user", "content": "Q"},
      {"role": "assistant", "content": "A"}], "tools": [{"name": "f"}]})"}};
  const auto made = Read(Named("chat"), record);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Json::parse(made->sample.text)["tools"][0]["name"], "f");
}

}  // namespace
}  // namespace ballast
