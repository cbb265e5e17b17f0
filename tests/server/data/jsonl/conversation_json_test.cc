#include "server/data/jsonl/conversation_json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ConversationJsonTest, FindsImages) {
  EXPECT_THAT(
      ParseJsonSample(R"({"image": "a/b.jpg"})")->paths(MediumKind::kImage),
      ElementsAre("a/b.jpg"));
  EXPECT_THAT(ParseJsonSample(R"({"image": ["b.jpg", "a\u0041.png"]})")
                  ->paths(MediumKind::kImage),
              ElementsAre("b.jpg", "aA.png"));
  EXPECT_THAT(ParseJsonSample(R"({"image": []})")->paths(MediumKind::kImage),
              IsEmpty());
  EXPECT_THAT(
      ParseJsonSample(R"({"image": null, "id": 1})")->paths(MediumKind::kImage),
      IsEmpty());
  EXPECT_THAT(ParseJsonSample(
                  R"({"video": null, "conversations": [{"value": "<image>"}]})")
                  ->paths(MediumKind::kImage),
              IsEmpty());
}

TEST(ConversationJsonTest, FindsImagesOfPartsUnlessTheyAreListed) {
  const std::string messages = R"("messages": [
      {"role": "user", "content": [
          {"type": "image", "image": "a.jpg"}, {"type": "text", "text": "Hi"},
          {"type": "image_url", "image_url": {"url": "b.jpg"}}]},
      {"role": "user", "content": "<image>"},
      {"role": "user", "content": [{"type": "image_url", "image_url": "c.jpg"},
                                   {"type": "image"}, 5]}])";
  EXPECT_THAT(ParseJsonSample("{" + messages + "}")->paths(MediumKind::kImage),
              ElementsAre("a.jpg", "b.jpg", "c.jpg"));
  EXPECT_THAT(ParseJsonSample(R"({"images": ["x.jpg"], )" + messages + "}")
                  ->paths(MediumKind::kImage),
              ElementsAre("x.jpg"));
  EXPECT_EQ(ParseJsonSample(R"({"messages": [{"content": [
                {"type": "image", "image": "a\u0001"}]}]})")
                .status()
                .message(),
            "path \"a\\001\" holds a control character");
}

// Its media are those of its prompt.
TEST(ConversationJsonTest, ReadsPreferencePairs) {
  const std::string ask = R"("prompt": [{"role": "user", "content": [
      {"type": "image", "image": "a.jpg"}, {"type": "text", "text": "q"}]}])";
  const std::string answers = R"("chosen": "yes", "rejected": "no")";
  for (const char* other : {R"("text": "a", )", R"("tokens": [1], )", ""}) {
    const auto sample =
        ParseJsonSample(absl::StrCat("{", other, ask, ", ", answers, "}"));
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->text_format, RawSample::TextFormat::kConversation);
    EXPECT_THAT(sample->paths(MediumKind::kImage), ElementsAre("a.jpg"));
  }
  for (const char* video : {R"("prompt": "<video>", )",
                            R"("prompt": [{"role": "user", "content": [
            {"type": "video", "video": "a.mp4"}]}], )",
                            R"("prompt": [{"role": "user", "content": [
            {"type": "audio", "audio": "a.wav"}]}], )"}) {
    EXPECT_THAT(
        std::string(CheckConversation(absl::StrCat("{", video, answers, "}"))
                        .message()),
        HasSubstr("a video or audio in a preference pair"));
  }
  EXPECT_THAT(
      std::string(ParseJsonSample(R"({"prompt": "q", "rejected": "no"})")
                      .status()
                      .message()),
      HasSubstr("half a preference pair"));
}

// They would be trained on with another text, or in another order.
TEST(ConversationJsonTest, RefusesKeysAndPartsThatNameDifferentFiles) {
  const auto parse = [](const std::string& keys, const std::string& parts) {
    return ParseJsonSample(absl::StrCat(
        "{", keys, R"(, "messages": [{"content": [)", parts, "]}]}"));
  };
  const std::string parts = R"({"type": "image", "image": "a.jpg"},
      {"type": "image_url", "image_url": {"url": "b.jpg"}})";
  EXPECT_EQ(parse(R"("images": ["b.jpg", "a.jpg"])", parts).status().message(),
            "a part of type image names a.jpg in place 1, and image 1 of key "
            "`image` or `images` is b.jpg; wanted the images in the order of "
            "their parts and marks");
  EXPECT_THAT(parse(R"("images": ["x/a.jpg", "b.jpg"])", parts)
                  ->paths(MediumKind::kImage),
              ElementsAre("x/a.jpg", "b.jpg"));
  // A part without a name says nothing.
  EXPECT_THAT(parse(R"("image": "b.jpg")", R"({"type": "image"})")
                  ->paths(MediumKind::kImage),
              ElementsAre("b.jpg"));
  EXPECT_THAT(std::string(parse(R"("video": "b.mp4")",
                                R"({"type": "video", "video": "a.mp4"})")
                              .status()
                              .message()),
              HasSubstr("names a.mp4 in place 1, and video 1 of key"));
  EXPECT_THAT(std::string(parse(R"("image": "a.jpg", "images": ["b.jpg"])", "")
                              .status()
                              .message()),
              HasSubstr("`image` and `images` name different images"));
  for (const char* keys : {R"("image": "a.jpg", "images": ["a.jpg"])",
                           R"("image": "a.jpg", "images": [])",
                           R"("image": [], "images": "a.jpg")",
                           R"("image": null, "images": ["a.jpg"])"}) {
    EXPECT_THAT(parse(keys, "")->paths(MediumKind::kImage),
                ElementsAre("a.jpg"))
        << keys;
  }
  EXPECT_THAT(std::string(parse(R"("video": "a.mp4", "videos": ["a.mp4"])", "")
                              .status()
                              .message()),
              HasSubstr("keys `video` and `videos`; wanted one"));
  EXPECT_EQ(parse(R"("video": "a.mp4", "videos": [])", "")
                ->media[MediumKind::kVideo]
                .size(),
            1u);
}

// Each mark in a text is the next of its kind, as each part is.
TEST(ConversationJsonTest, ComparesThePlacesOfPartsAmongMarks) {
  const auto parse = [](absl::string_view keys, absl::string_view first,
                        absl::string_view then) {
    const auto sample = ParseJsonSample(absl::StrCat(
        "{", keys, R"(, "messages": [{"role": "user", "content": [)", first,
        R"(]}, {"role": "user", "content": )", then, "}]}"));
    return sample.ok() ? "" : std::string(sample.status().message());
  };
  const std::string keys[] = {R"("images": ["a", "b"])",
                              R"("videos": ["a", "b"])",
                              R"("audios": ["a", "b"])"};
  const std::string types[] = {"image", "video", "audio"};
  for (size_t i = 0; i < 3; ++i) {
    const std::string& type = types[i];
    const std::string mark = absl::StrCat("<", type, ">");
    const std::string text = absl::StrCat("\"x", mark, "y\"");
    const auto part = [&](absl::string_view path) {
      return absl::StrCat(R"({"type": ")", type, R"(", ")", type, R"(": ")",
                          path, R"("})");
    };
    EXPECT_THAT(parse(keys[i], part("b"), text),
                HasSubstr(absl::StrCat("a part of type ", type,
                                       " names b in place 1, and ", type,
                                       " 1 of key `", type, "`")));
    EXPECT_EQ(parse(keys[i], part("a"), text), "");
    // Among parts, and in a text before one.
    const std::string text_part =
        absl::StrCat(R"({"type": "text", "text": )", text, "},");
    EXPECT_THAT(parse(keys[i], text_part + part("a"), R"("q")"),
                HasSubstr("names a in place 2"));
    EXPECT_EQ(parse(keys[i], text_part + part("b"), R"("q")"), "");
    // How many there are is compared with the text later.
    EXPECT_EQ(parse(keys[i], text_part + part("a"), text), "");
  }
  // In a sample without images <image> marks a video, too.
  EXPECT_THAT(
      parse(keys[1], R"({"type": "video", "video": "b"})", R"("<image>")"),
      HasSubstr("names b in place 1, and video 1"));
  EXPECT_EQ(
      parse(keys[1], R"({"type": "video", "video": "a"})", R"("<image>")"), "");
}

// Parts of llava-instruct-mix-vsft name their image by its place.
TEST(ConversationJsonTest, RefusesPartsThatNameImagesInAnotherOrder) {
  const auto check = [](absl::string_view first, absl::string_view second) {
    return std::string(
        CheckConversation(
            absl::StrCat(R"({"messages": [{"role": "user", "content": [)",
                         R"({"type": "image", "index": )", first,
                         R"(}, {"type": "text", "text": "q", "index": null},)",
                         R"( {"type": "image", "index": )", second, "}]}]}"))
            .message());
  };
  EXPECT_THAT(check("1", "0"), HasSubstr("`index` of an image part is 1, and "
                                         "the part is image 0 of the turns"));
  EXPECT_THAT(check("0", "0"), HasSubstr("is 0, and the part is image 1"));
  EXPECT_THAT(check("0", "1"), Not(HasSubstr("`index`")));
  EXPECT_THAT(check("null", "1"), Not(HasSubstr("`index`")));
}

// They would be trained on in another size than their data say.
TEST(ConversationJsonTest, RefusesImagesWithASizeOfTheirOwn) {
  for (const char* key :
       {"min_pixels", "max_pixels", "resized_height", "resized_width"}) {
    const std::string json = absl::StrCat(
        R"({"messages": [{"content": [{"type": "image", "image": "a.jpg", ")",
        key, R"(": 280}]}]})");
    const std::string wanted =
        absl::StrCat("`", key, "` of one image is not supported");
    EXPECT_THAT(ParseJsonSample(json).status().message(), HasSubstr(wanted));
    EXPECT_THAT(CheckConversation(json).message(), HasSubstr(wanted));
    EXPECT_THAT(ReadVideoParts(json).status().message(), HasSubstr(wanted));
  }
  // Columnar sets have all keys in all parts.
  EXPECT_THAT(ParseJsonSample(R"({"messages": [{"content": [{"type": "image",
                  "image": "a.jpg", "max_pixels": null}, {"type": "text",
                  "text": "q", "max_pixels": 3}]}]})")
                  ->paths(MediumKind::kImage),
              ElementsAre("a.jpg"));
}

// The model would see the whole video.
TEST(ConversationJsonTest, RefusesAClipBesideTheTurns) {
  for (const char* key :
       {"video_start", "video_end", "audio_start", "start", "end"}) {
    for (const char* medium : {"video", "audio"}) {
      const std::string json = absl::StrCat(
          R"({")", medium, R"(": "a.mp4", ")", key,
          R"(": 3, "conversations": [{"from": "human", "value": "<)", medium,
          R"(>"}]})");
      const std::string wanted =
          absl::StrCat("`", key, "` beside the turns is not read");
      EXPECT_THAT(ParseJsonSample(json).status().message(), HasSubstr(wanted));
      // Tars read their samples by these two.
      EXPECT_THAT(ReadVideoParts(json).status().message(), HasSubstr(wanted));
      EXPECT_THAT(ReadAudioParts(json).status().message(), HasSubstr(wanted));
    }
    EXPECT_TRUE(ParseJsonSample(absl::StrCat(R"({"image": "a.jpg", ")", key,
                                             R"(": 3, "conversations": []})"))
                    .ok());
  }
  EXPECT_TRUE(
      ParseJsonSample(R"({"image": "a.jpg", "video_start": null})").ok());
}

TEST(ConversationJsonTest, TokensMakeAPackedSample) {
  const auto sample = ParseJsonSample(R"({"tokens": [1], "image": "a.jpg"})");
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->text_format, RawSample::TextFormat::kPackedJson);
  EXPECT_THAT(sample->paths(MediumKind::kImage), ElementsAre("a.jpg"));
  EXPECT_EQ(ParseJsonSample("{}")->text_format,
            RawSample::TextFormat::kConversation);
}

// The configuration decides whether that is an error.
TEST(ConversationJsonTest, AcceptsBytesThatAreNotUtf8) {
  const auto sample =
      ParseJsonSample("{\"image\": \"a.jpg\", \"x\": \"\xff\"}");
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(sample->paths(MediumKind::kImage), ElementsAre("a.jpg"));
}

TEST(ConversationJsonTest, RefusesWithTheReason) {
  const auto reason = [](absl::string_view json) {
    const absl::Status status = ParseJsonSample(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  };
  EXPECT_THAT(reason(""), HasSubstr("not JSON: "));
  EXPECT_THAT(reason("{"), HasSubstr("not JSON: "));
  EXPECT_THAT(reason(std::string(5000, '[')), HasSubstr("not JSON: "));
  EXPECT_EQ(reason("[]"), "not a JSON object");
  EXPECT_EQ(reason(R"({"image": 5})"),
            "`image` is neither a string nor a list of strings");
  EXPECT_EQ(reason(R"({"image": ["a.jpg", ["b.jpg"]]})"),
            "`image` is neither a string nor a list of strings");
  EXPECT_EQ(reason(R"({"image": ""})"), "path \"\" is empty");
  EXPECT_THAT(reason(R"({"image": "ftp://x/a.jpg"})"), HasSubstr("is a URL"));
  EXPECT_EQ(reason(R"({"image": "a\u0000.jpg"})"),
            "path \"a\\000.jpg\" holds a control character");
  std::string many = R"({"image": ["a")";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&many, ",\"a\"");
  EXPECT_EQ(reason(many + "]}"), "over 10000 images");
}

TEST(ConversationJsonTest, RefusesAFileInAKeyThatIsNotRead) {
  const auto parse = [](absl::string_view keys) {
    return ParseJsonSample(absl::StrCat("{", keys, "}")).status();
  };
  // Hugging Face's ImageFolder.
  EXPECT_THAT(
      std::string(
          parse(R"("file_name": "a/1.JPG", "text": "A cat")").message()),
      HasSubstr("key `file_name` names a file, a/1.JPG, and is not"));
  EXPECT_FALSE(parse(R"("text": "x", "image_paths": ["1.png"])").ok());
  EXPECT_FALSE(parse(R"("messages": [{"role": "user", "content": "x"}],
                        "wav": "1.wav")")
                   .ok());
  // Texts, addresses of pages, and keys next to media that are read.
  for (const char* keys :
       {R"("text": "1.png")", R"("x": "See 1.png", "text": "")",
        R"("text": "x", "url": "http://a/1.html", "language": "en")",
        R"("text": "x", "id": "1.txt", "n": [1], "none": [], "a": null)",
        R"("text": "x", "image": "1.png", "file_name": "1.png")",
        R"("text": "x", "audio": "1.wav", "wav": "1.wav")"}) {
    EXPECT_EQ(parse(keys), absl::OkStatus()) << keys;
  }
}

// Rows of image addresses and of images in other forms.
TEST(ConversationJsonTest, RefusesMediaInAKeyThatIsNotRead) {
  const auto parse = [](absl::string_view keys) {
    return ParseJsonSample(absl::StrCat("{", keys, "}")).status();
  };
  for (const char* keys :
       {R"("text": "A cat", "image_url": "http://a/b")",
        R"("text": "A cat", "image_base64": "AAAA")",
        R"("text": "A cat", "img": "aGk=")", R"("text": "A", "jpg": "aGk=")",
        R"("text": "A cat", "pixel_values": [[[1, 2], [3, 4]]])",
        R"("text": "A cat", "picture": {"bytes": "aGk="})",
        R"("text": "A cat", "url": "http://a/1.png?x=1")",
        // COYO, DataComp and LAION.
        R"("text": "A", "url": "http://a/b", "width": 4, "height": 5)",
        R"("text": "A", "url": "http://a/b", "image_phash": "f1")",
        R"("text": "A", "url": "http://a/b", "clip_b32_similarity_score": 1)",
        R"("messages": [{"role": "user", "content": "x"}],
           "image_bytes": "aGk=")"}) {
    const absl::Status status = parse(keys);
    EXPECT_FALSE(status.ok()) << keys;
    EXPECT_EQ(GetBadKind(status), "media under a key that is not read") << keys;
  }
  for (const char* keys :
       {// FineWeb and C4: the address of the page.
        R"("text": "A", "url": "https://a/b", "dump": "CC", "date": "x",
           "file_path": "s3://a/b.warc.gz", "language_score": 0.9)",
        R"("text": "A", "url": "https://a/b", "timestamp": "2019-04-25")",
        // A page of MMC4 without images.
        R"("text_list": ["A"], "image_info": [], "url": "https://a/b",
           "similarity_matrix": [[0.1]])",
        R"("text": "A", "image_id": "17", "num_images": 0, "image_url": "")",
        R"("text": "A", "image_width": "3", "images": [], "image": null)",
        R"("text": "A", "image_caption": "A cat", "image_scores": [1, 2])"}) {
    EXPECT_EQ(parse(keys), absl::OkStatus()) << keys;
  }
}

// A sample with media of its own may have others under a key that is not read,
// or in its texts, as Qwen-VL's sets.
TEST(ConversationJsonTest, RefusesMediaBesideItsOwn) {
  const auto parse = [](absl::string_view keys) {
    return ParseJsonSample(
               absl::StrCat(R"({"image": "a/b.jpg", "messages": [{"role":
                   "user", "content": "<image>Q"}])",
                            keys, "}"))
        .status();
  };
  EXPECT_EQ(GetBadKind(parse(R"(, "depth": "d/b.png")")),
            "media under a key that is not read");
  EXPECT_EQ(GetBadKind(parse(R"(, "image_b": ["c.jpg"])")),
            "media under a key that is not read");
  EXPECT_EQ(parse(R"(, "id": "c.jpg", "image_path": "/data/a/b.jpg",
                  "depth": "deep")"),
            absl::OkStatus());
  const auto says = [](absl::string_view text) {
    return ParseJsonSample(
               absl::StrCat(R"({"messages": [{"role": "user", "content": ")",
                            text, R"("}]})"))
        .status();
  };
  EXPECT_EQ(GetBadKind(says("Picture 1: <img>a/b.jpg</img>Q")),
            "image named within a text");
  EXPECT_EQ(says("<img> is a tag, <img src='a.jpg'> too"), absl::OkStatus());
}

TEST(ConversationJsonTest, RefusesAnswersThatAreMarkedAsUndesired) {
  const auto parse = [](absl::string_view keys) {
    return ParseJsonSample(
               absl::StrCat(R"({"messages": [{"role": "user", "content": "x"},)"
                            R"({"role": "assistant", "content": "y"}])",
                            keys, "}"))
        .status();
  };
  for (const char* keys : {R"(, "label": false)", R"(, "kto_tag": false)"}) {
    const absl::Status status = parse(keys);
    EXPECT_EQ(GetBadKind(status), "undesired answer") << keys;
    EXPECT_THAT(std::string(status.message()), HasSubstr("false`"));
  }
  for (const char* keys :
       {R"(, "label": true)", R"(, "label": 0)", R"(, "label": "cat")",
        R"(, "labels": [false])", R"(, "x": {"label": false})"}) {
    EXPECT_EQ(parse(keys), absl::OkStatus()) << keys;
  }
  // A document's label is a class.
  EXPECT_TRUE(ParseJsonSample(R"({"text": "x", "label": false})").ok());
}

TEST(ConversationJsonTest, RefusesMarksWhoseValuesStandElsewhere) {
  const auto parse = [](absl::string_view text, absl::string_view keys) {
    return ParseJsonSample(
               absl::StrCat(R"({"messages": [{"role": "user", "content": ")",
                            text, R"("}])", keys, "}"))
        .status();
  };
  for (const char* mark : {"<bbox>", "<ref-object>", "<region>"}) {
    const absl::Status status =
        parse(absl::StrCat("Where is ", mark, "?"),
              R"(, "objects": {"ref": ["cat"], "bbox": [[1, 2, 3, 4]]})");
    EXPECT_EQ(GetBadKind(status), "mark without its value");
    EXPECT_THAT(std::string(status.message()), HasSubstr(mark));
    EXPECT_FALSE(parse(mark, R"(, "bbox": [[1, 2, 3, 4]])").ok());
    // A mark that stands for itself, and values that no mark asks for.
    EXPECT_EQ(parse(mark, ""), absl::OkStatus());
    EXPECT_EQ(parse(mark, R"(, "objects": {}, "bbox": [])"), absl::OkStatus());
    EXPECT_EQ(parse("x", R"(, "bbox": [[1, 2, 3, 4]])"), absl::OkStatus());
  }
}

// Python takes the last of two values, simdjson the first.
TEST(ConversationJsonTest, RefusesAKeyThatComesTwice) {
  std::string many = "{";
  for (int i = 0; i < 40; ++i) absl::StrAppend(&many, "\"k", i, "\": 0, ");
  const std::string said = R"("conversations": [{"from": "gpt", "value": "a")";
  for (const auto& [json, key] :
       std::vector<std::pair<std::string, std::string>>{
           {R"({"image": "a.jpg", "image": "b.jpg"})", "image"},
           {R"({"image": "a.jpg", "im\u0061ge": "a.jpg"})", "image"},
           {"{" + said + R"(, "value": "b"}]})", "value"},
           {"{" + said + R"(, "extra": [[{"x": {"y": 1, "y": 2}}]]}]})", "y"},
           {many + R"("k39": 1})", "k39"},
           {many + R"("k3": 1})", "k3"}}) {
    for (const absl::Status& status :
         {ParseJsonSample(json).status(), CheckConversation(json),
          ReadVideoParts(json).status(), CheckKeysOnce(json)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("key \"" + key + "\" twice in one object"));
    }
  }
  EXPECT_TRUE(CheckConversation(many + "\"k40\": {\"k1\": 1}}").ok());
  EXPECT_TRUE(CheckKeysOnce(R"([{"a": 1}, {"a": 2}])").ok());
}

TEST(ConversationJsonTest, RefusesVideo) {
  EXPECT_EQ(CheckConversation(R"({"video": "a.mp4"})").message(),
            "video is not supported: key `video`");
  EXPECT_EQ(CheckConversation(R"({"video": []})").message(),
            "video is not supported: key `video`");
  for (const absl::string_view mark : {"<video>", R"(\u003cvideo>)"}) {
    const std::string json = absl::StrCat(
        R"({"conversations": [{"from": "human", "value": "Hi"},
            {"from": "human", "value": "See )",
        mark, R"("}]})");
    EXPECT_EQ(CheckConversation(json).message(),
              "video is not supported: mark `<video>`");
  }
  EXPECT_EQ(CheckConversation(
                R"({"messages": [{"role": "user", "content": "<video>"}]})")
                .message(),
            "video is not supported: mark `<video>`");
  EXPECT_EQ(CheckConversation(R"({"messages": [{"content": [
                {"type": "video", "video": "a.mp4"}]}]})")
                .message(),
            "video is not supported: part of type video");
  // Elsewhere it is no mark; the text builder handles other forms.
  EXPECT_TRUE(CheckConversation(R"({"id": "<video>"})").ok());
  // Samples of images in a set of both.
  EXPECT_TRUE(CheckConversation(R"({"images": ["a.jpg"], "videos": []})").ok());
  EXPECT_TRUE(
      CheckConversation(R"({"conversations": [1, {"value": 2}]})").ok());
  EXPECT_TRUE(CheckConversation(R"({"conversations": "no"})").ok());
}

TEST(ConversationJsonTest, ReadsVideos) {
  const auto paths = [](absl::string_view json) {
    const auto sample = ParseJsonSample(json);
    std::vector<std::string> found;
    if (!sample.ok())
      return std::vector<std::string>{std::string(sample.status().message())};
    for (const NamedMedium& video : sample->media[MediumKind::kVideo]) {
      found.push_back(video.frames.empty() ? video.path
                                           : absl::StrJoin(video.frames, "+"));
    }
    return found;
  };
  EXPECT_THAT(paths(R"({"video": "a/b.mp4", "conversations": [
                  {"from": "human", "value": "<video>\nQ"}]})"),
              ElementsAre("a/b.mp4"));
  EXPECT_THAT(paths(R"({"videos": ["a.mp4", "b.webm"]})"),
              ElementsAre("a.mp4", "b.webm"));
  EXPECT_THAT(paths(R"({"video": null, "videos": null})"), IsEmpty());
  EXPECT_THAT(paths(R"({"messages": [{"content": [
                  {"type": "video", "video": "a.mp4"},
                  {"type": "video_url", "video_url": {"url": "b.mp4"}}]}]})"),
              ElementsAre("a.mp4", "b.mp4"));
  EXPECT_THAT(paths(R"({"messages": [{"content": [
                  {"type": "video", "video": null, "path": "a.mp4"},
                  {"type": "video", "video": ["0.jpg"]}]}]})"),
              ElementsAre("a.mp4", "0.jpg"));
  EXPECT_THAT(paths(R"({"video": ["a.jpg", "b.jpg"]})"),
              ElementsAre("a.jpg+b.jpg"));
  EXPECT_THAT(paths(R"({"videos": [["a.jpg", "b.jpg"], "c.mp4"]})"),
              ElementsAre("a.jpg+b.jpg", "c.mp4"));
  EXPECT_THAT(paths(R"({"video": ["a.MP4"]})"),
              ElementsAre(HasSubstr("several videos are a list `videos`")));
  EXPECT_THAT(paths(R"({"video": []})"),
              ElementsAre("a video is an empty list"));
  EXPECT_THAT(paths(R"({"video": [["a.jpg"]]})"),
              ElementsAre(HasSubstr("a list of other things than paths")));
  // Where they may lead, MediaRoot says.
  EXPECT_THAT(paths(R"({"videos": ["../a.mp4", "/a.mp4", "file:///a.mp4"]})"),
              ElementsAre("../a.mp4", "/a.mp4", "file:///a.mp4"));
  EXPECT_THAT(paths(R"({"video": "https://x/a.mp4"})"),
              ElementsAre(HasSubstr("video \"https://x/a.mp4\" is a URL")));
  EXPECT_THAT(paths(R"({"conversations": [{"value": "<video>"}]})"),
              ElementsAre(HasSubstr("in a sample without a video")));
}

TEST(ConversationJsonTest, ReadsTheRateOfPictures) {
  const auto part = [](absl::string_view keys) {
    return ParseJsonSample(absl::StrCat(
        R"({"messages": [{"content": [{"type": "video", "video": ["0.jpg"], )",
        keys, "}]}]}"));
  };
  const auto sample = part(R"("sample_fps": 0.5)");
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->media[MediumKind::kVideo][0].fps, 0.5);
  for (const absl::string_view unread :
       {R"("fps": 2)", R"("start": 1)", R"("video_end": 1)", R"("raw_fps": 3)",
        R"("max_pixels": 3136)", R"("sample_fps": "1")"}) {
    EXPECT_EQ(part(unread).status().code(), absl::StatusCode::kInvalidArgument)
        << unread;
  }
  EXPECT_THAT(part(R"("fps": 2)").status().message(),
              HasSubstr("wanted `sample_fps`"));
  EXPECT_THAT(ParseJsonSample(R"({"messages": [{"content": [{"type": "video",
                                 "video": "a.mp4", "sample_fps": 2}]}]})")
                  .status()
                  .message(),
              HasSubstr("wanted `fps`"));
}

TEST(ConversationJsonTest, ReadsTheClipOfAVideo) {
  const auto sample = ParseJsonSample(R"({"messages": [{"content": [
      {"type": "video", "video": "a.mp4", "video_start": 1.5, "end": 9,
       "fps": 4}, {"type": "video", "video": "b.mp4"}]}]})");
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_EQ(sample->media[MediumKind::kVideo].size(), 2u);
  EXPECT_EQ(sample->media[MediumKind::kVideo][0].start, 1.5);
  EXPECT_EQ(sample->media[MediumKind::kVideo][0].end, 9);
  EXPECT_EQ(sample->media[MediumKind::kVideo][0].fps, 4);
  EXPECT_FALSE(sample->media[MediumKind::kVideo][1].start.has_value());
  for (const char* key :
       {"nframes", "num_frames", "max_pixels", "total_pixels"}) {
    EXPECT_THAT(
        ParseJsonSample(absl::StrCat(
                            R"({"messages": [{"content": [{"type": "video",
                            "video": "a.mp4", ")",
                            key, R"(": 8}]}]})"))
            .status()
            .message(),
        HasSubstr("of one video is not supported"));
  }
  EXPECT_THAT(ParseJsonSample(R"({"video": "a.mp4", "messages": [{"content": [
                                 {"type": "video", "start": 1}]}]})")
                  .status()
                  .message(),
              HasSubstr("has a clip, a rate or frames beside a key `video`"));
  EXPECT_THAT(ParseJsonSample(R"({"messages": [{"content": [{"type": "video",
                                 "video": "a.mp4", "start": "x"}]}]})")
                  .status()
                  .message(),
              HasSubstr("`start` of a video is no number"));
}

// The paths of an object's clips of audio, with their seconds, or its fault.
std::string Clips(const std::string& json) {
  const auto sample = ParseJsonSample(json);
  if (!sample.ok()) return std::string(sample.status().message());
  std::string clips;
  for (const NamedMedium& clip : sample->media[MediumKind::kAudio]) {
    absl::StrAppend(&clips, clips.empty() ? "" : " ", clip.path);
    if (clip.start.has_value()) absl::StrAppend(&clips, "@", *clip.start);
    if (clip.end.has_value()) absl::StrAppend(&clips, "-", *clip.end);
  }
  return clips;
}

TEST(ConversationJsonTest, ReadsClipsOfAudio) {
  EXPECT_EQ(Clips(R"({"audio": "a.wav", "messages": []})"), "a.wav");
  EXPECT_EQ(Clips(R"({"audios": ["a.wav", "b.mp3"], "audio": null,
                      "messages": []})"),
            "a.wav b.mp3");
  EXPECT_EQ(Clips(R"({"audios": "a.wav", "audio": [], "messages": []})"),
            "a.wav");
  EXPECT_EQ(Clips(R"({"messages": [{"content": [
      {"type": "audio", "audio": "a.wav", "start": 0.5, "end": 2},
      {"type": "audio", "audio": null, "audio_url": "b.wav"},
      {"type": "audio", "path": "c.wav", "audio_end": 3}]}]})"),
            "a.wav@0.5-2 b.wav c.wav-3");
  EXPECT_THAT(Clips(R"({"audio": "a.wav", "audios": "b.wav", "messages": []})"),
              HasSubstr("keys `audio` and `audios`"));
  EXPECT_THAT(Clips(R"({"audio": {"path": "a.wav"}, "messages": []})"),
              HasSubstr("`audio` is neither a string nor a list"));
  EXPECT_THAT(Clips(R"({"audio": "../a.wav", "messages": []})"),
              HasSubstr(".."));
  EXPECT_THAT(Clips(R"({"audio": "http://a/b.wav", "messages": []})"),
              HasSubstr("is a URL"));
  EXPECT_THAT(Clips(R"({"audio": "a.wav", "messages": [{"content": [
      {"type": "audio", "audio": "b.wav"}]}]})"),
              HasSubstr("a part of type audio names b.wav in place 1"));
  EXPECT_THAT(Clips(R"({"audio": "a.wav", "messages": [{"content": [
      {"type": "audio", "start": 1}]}]})"),
              HasSubstr("has a clip beside a key `audio`"));
  EXPECT_THAT(Clips(R"({"messages": [{"content": [
      {"type": "audio", "audio": "a.wav", "end": -1}]}]})"),
              HasSubstr("`end` of a clip is no number of at least 0"));
}

TEST(ConversationJsonTest, TurnsMayBeText) {
  const auto sample = ParseJsonSample(R"({"messages": "[{\"content\": )"
                                      R"([{\"type\": \"image\", )"
                                      R"(\"image\": \"a.jpg\"}]}]"})");
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(sample->paths(MediumKind::kImage), ElementsAre("a.jpg"));
  EXPECT_THAT(ParseJsonSample(R"({"conversation": [{"value": "<video>"}]})")
                  .status()
                  .message(),
              HasSubstr("mark `<video>`"));
}

// "TEXT IMAGES", or why there is no document.
std::string Document(const std::string& json) {
  const auto sample = ParseJsonSample(json);
  if (!sample.ok()) return std::string(sample.status().message());
  EXPECT_EQ(sample->text_format, RawSample::TextFormat::kPlain);
  return absl::StrCat(sample->document, " ",
                      absl::StrJoin(sample->paths(MediumKind::kImage), ","));
}

TEST(DocumentJsonTest, ReadsPlainTextAndInterleavedDocuments) {
  EXPECT_EQ(Document(R"({"text": "a\nb", "id": 3})"), "a\nb ");
  EXPECT_EQ(Document(R"({"text": "a<image>b", "image": "x.jpg",
                         "messages": null})"),
            "a<image>b x.jpg");
  // OBELICS, OmniCorpus.
  EXPECT_EQ(Document(R"({"texts": ["a ", null, "b", null, null],
                         "images": [null, "x.jpg", null, "y.jpg", null],
                         "metadata": "[]"})"),
            "a <image>b<image> x.jpg,y.jpg");
  EXPECT_EQ(Document(R"({"texts": ["a", null, "b"]})"), "ab ");
  // MMC4.
  EXPECT_EQ(Document(R"({"text_list": ["A.", "B.", "C."], "image_info": [
      {"image_name": "2.jpg", "matched_text_index": 2, "matched_sim": 0.3},
      {"image_name": "0.jpg", "matched_text_index": 0},
      {"image_name": "1.jpg", "matched_text_index": 2}]})"),
            "<image>A. B. <image><image>C. 0.jpg,2.jpg,1.jpg");
}

TEST(DocumentJsonTest, RefusesWhatWouldLoseItsPlace) {
  EXPECT_THAT(Document(R"({"texts": ["a"], "images": [null, "x.jpg"]})"),
              HasSubstr("`texts` has 1 places, `images` has 2"));
  EXPECT_THAT(Document(R"({"texts": ["a"], "images": ["x.jpg"]})"),
              HasSubstr("place 1: both a text and an image"));
  EXPECT_THAT(Document(R"({"texts": [1], "images": [null]})"),
              HasSubstr("`texts` has at place 1 neither"));
  EXPECT_THAT(Document(R"({"texts": [null], "images": ["http://a/b.jpg"]})"),
              HasSubstr("is a URL"));
  EXPECT_THAT(Document(R"({"text_list": ["A."], "image_info": [
                  {"image_name": "x.jpg", "matched_text_index": 1}]})"),
              HasSubstr("`image_info` has at place 1 no"));
  EXPECT_THAT(Document(R"({"text_list": ["A."]})"), HasSubstr("image_info"));
  EXPECT_THAT(Document(R"({"texts": ["a"], "images": [null], "image": "x"})"),
              HasSubstr("`image` beside a document"));
  EXPECT_THAT(Document(R"({"texts": ["a"], "images": "x.jpg"})"),
              HasSubstr("`images` beside a document"));
  EXPECT_THAT(Document(R"({"text_list": ["A."], "image_info": [],
                           "images": ["x.jpg"]})"),
              HasSubstr("`images` beside a document"));
  EXPECT_THAT(Document(R"({"text": "a <video>"})"), HasSubstr("<video>"));
  EXPECT_THAT(Document("{\"text\": \"a\xff\"}"), HasSubstr("in a document"));
}

}  // namespace
}  // namespace ballast
