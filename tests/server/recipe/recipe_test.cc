#include "server/recipe/recipe.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/helper_program.h"
#include "common/python_helper.h"
#include "server/sample/data_fault.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kImport[] = "import ballast.recipe as recipe\n";
constexpr char kCook[] = "@recipe.cook\ndef cook(record):\n";

class RecipeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
  }

  // The recipe of this text; `options` as Recipe.
  absl::StatusOr<std::shared_ptr<const Recipe>> Open(
      absl::string_view text, const Recipe::Options& options = {}) {
    path_ = TestFolder() + "/my_recipe.py";
    WriteFile(path_, text);
    return Recipe::Open(path_, options);
  }

  // A recipe whose `cook` has this body.
  std::shared_ptr<const Recipe> Make(absl::string_view body,
                                     const Recipe::Options& options = {},
                                     absl::string_view top = "") {
    auto recipe = Open(absl::StrCat(kImport, top, kCook, body), options);
    EXPECT_TRUE(recipe.ok()) << recipe.status();
    return *std::move(recipe);
  }

  static RecipeRecord Line(absl::string_view json) {
    RecipeRecord record;
    record.source = "chats";
    record.name = "chat.jsonl:1";
    record.text = std::string(json);
    return record;
  }

  static absl::StatusOr<std::optional<CookedSample>> Cook(
      const Recipe& recipe, const RecipeRecord& record) {
    const RecipeRecord* const one = &record;
    return std::move(recipe.Cook({&one, 1})[0]);
  }

  // What is said of a record on which `cook` fails.
  std::string Refusal(absl::string_view body,
                      const Recipe::Options& options = {},
                      absl::string_view top = "", bool is_fault = true) {
    const auto recipe = Make(body, options, top);
    const auto cooked = Cook(*recipe, Line("{}"));
    EXPECT_EQ(IsDataFault(cooked.status()), is_fault) << cooked.status();
    EXPECT_EQ(absl::IsUnavailable(cooked.status()), !is_fault);
    // The next record is cooked all the same.
    const auto next = Cook(*recipe, Line(R"({"sound": 1})"));
    EXPECT_TRUE(next.ok()) << next.status();
    return std::string(cooked.status().message());
  }

  std::string path_;
};

// Goes on where the record says so.
constexpr char kIfSound[] =
    "    if 'sound' in record.json(): return recipe.Sample(text='sound')\n";

TEST_F(RecipeTest, MakesASampleOfALine) {
  const auto recipe = Make(
      "    row = record.json()\n"
      "    return recipe.Sample(messages=[{'role': 'user', 'content': "
      "row['q']}], images=[record.media('image'), *record.media('more'), 'c'], "
      "tools=row.get('tools'), system=record.source + record.name)\n");
  const auto cooked =
      Cook(*recipe, Line(R"({"q": "é?", "image": "a.jpg", "more": ["b.jpg"],
                             "tools": [{"name": "f"}]})"));
  ASSERT_TRUE(cooked.ok()) << cooked.status();
  ASSERT_TRUE(cooked->has_value());
  EXPECT_EQ(Json::parse((*cooked)->text),
            Json::parse(R"({"messages": [{"role": "user", "content": "é?"}],
                            "tools": [{"name": "f"}],
                            "system": "chatschat.jsonl:1"})"));
  EXPECT_FALSE((*cooked)->is_document);
  EXPECT_THAT((*cooked)->images, ElementsAre(CookedSample::Medium("a.jpg"),
                                             CookedSample::Medium("b.jpg"),
                                             CookedSample::Medium("c")));
}

// Turns that travel as texts, and those that do not.
TEST_F(RecipeTest, MakesTheTurnsThatCookGave) {
  const std::vector<std::pair<std::string, std::string>> samples = {
      {R"(recipe.Sample([{'role': 'user', 'content': '"é"\\\n\t\x01\x7f'},
                         {'content': '', 'role': 'assistant'}]))",
       R"({"messages": [{"role": "user",
                         "content": "\"é\"\\\n\t\u0001\u007f"},
                        {"role": "assistant", "content": ""}]})"},
      {"recipe.Sample(conversation=({'from': 'human', 'value': 'a'},))",
       R"({"conversations": [{"from": "human", "value": "a"}]})"},
      {"recipe.Sample([])", R"({"messages": []})"},
      {"recipe.Sample([{}])", R"({"messages": [{}]})"},
      {"recipe.Sample([{'role': 'user', 'content': 'a\\0b'}])",
       R"({"messages": [{"role": "user", "content": "a\u0000b"}]})"},
      {"recipe.Sample([{'role': 'user', 'content': ['a']}])",
       R"({"messages": [{"role": "user", "content": ["a"]}]})"},
      {"recipe.Sample([{'role': 'a', 'content': 'b'}, {'role': 'c', 'x': "
       "'d'}])",
       R"({"messages": [{"role": "a", "content": "b"},
                        {"role": "c", "x": "d"}]})"},
      {"recipe.Sample([{'role': 'a', 'content': 'b', 'name': 'c'}])",
       R"({"messages": [{"role": "a", "content": "b", "name": "c"}]})"},
      {"recipe.Sample([{'role': 'a', 'content': 'b'}], tools=[])",
       R"({"messages": [{"role": "a", "content": "b"}], "tools": []})"}};
  for (const auto& [given, wanted] : samples) {
    const auto cooked =
        Cook(*Make(absl::StrCat("    return ", given, "\n")), Line("{}"));
    ASSERT_TRUE(cooked.ok()) << given << cooked.status();
    EXPECT_EQ(Json::parse((*cooked)->text), Json::parse(wanted)) << given;
  }
  EXPECT_THAT(Refusal(absl::StrCat(
                  kIfSound,
                  "    return recipe.Sample([{'role': '\\ud800', 'content': "
                  "'a'}])\n")),
              HasSubstr("surrogates not allowed"));
}

TEST_F(RecipeTest, GivesFields) {
  const auto recipe = Make(
      "    q = record.json()['q']\n"
      "    fields = {'advantage': 0.1, 'reward': [1, None]}\n"
      "    if q == 'text': return recipe.Sample(text=q, fields=fields)\n"
      "    return recipe.Sample([{'role': 'user', 'content': q}], "
      "fields=fields)\n");
  const auto turns = Cook(*recipe, Line(R"({"q": "turns"})"));
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_EQ(Json::parse((*turns)->text),
            Json::parse(R"({"messages": [{"role": "user", "content": "turns"}],
                            "advantage": 0.1, "reward": [1, null]})"));
  EXPECT_EQ((*turns)->fields, "");
  const auto document = Cook(*recipe, Line(R"({"q": "text"})"));
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)->text, "text");
  EXPECT_EQ((*document)->fields, R"({"advantage":0.1,"reward":[1,null]})");
  EXPECT_THAT(Refusal("    if 'sound' in record.json(): return None\n"
                      "    return recipe.Sample([], fields={'messages': 1})\n"),
              HasSubstr("field 'messages' has the name of another key"));
}

// A document has no object that would hold them: a field would have become its
// default, a system prompt nothing.
TEST_F(RecipeTest, RefusesKeysBesideADocument) {
  for (const auto& [given, named] :
       std::vector<std::pair<std::string, std::string>>{
           {"advantage=0.5", "'advantage' with text"},
           {"system='Be brief.', tools=[{'name': 'f'}]",
            "'system', 'tools' with text"},
           {"rejected_messages=[]", "'rejected_messages' with text"}}) {
    EXPECT_THAT(
        Refusal(absl::StrCat(kIfSound, "    return recipe.Sample(text='x', ",
                             given, ")\n")),
        AllOf(HasSubstr(named), HasSubstr("fields={...}")))
        << given;
  }
}

TEST_F(RecipeTest, MakesASampleOfMembers) {
  const auto recipe = Make(
      "    m = record.members\n"
      "    assert record.key == 'k' and m['jpg'].size == 7\n"
      "    assert record.json() == {'a': 1} and record.text() == 'hello'\n"
      "    assert m['cls'].bytes() == b'\\x07'\n"
      "    return recipe.Sample(text='x', images=[m['jpg']],\n"
      "        videos=[record.media('mp4'), [m['jpg'], m['jpg']]])\n");
  RecipeRecord record;
  record.kind = RecipeRecord::Kind::kMembers;
  record.text = "k";
  record.parts = {{"json", 8, R"({"a": 1})"},
                  {"jpg", 7, std::nullopt},
                  {"txt", 5, "hello"},
                  {"cls", 1, "\x07"},
                  {"mp4", 9, std::nullopt}};
  const auto cooked = Cook(*recipe, record);
  ASSERT_TRUE(cooked.ok()) << cooked.status();
  EXPECT_TRUE((*cooked)->is_document);
  EXPECT_EQ((*cooked)->text, "x");
  EXPECT_THAT((*cooked)->images, ElementsAre(CookedSample::Medium(1u)));
  ASSERT_EQ((*cooked)->videos.size(), 2u);
  EXPECT_FALSE((*cooked)->videos[0].is_list);
  EXPECT_THAT((*cooked)->videos[0].parts,
              ElementsAre(CookedSample::Medium(4u)));
  EXPECT_TRUE((*cooked)->videos[1].is_list);
  EXPECT_EQ((*cooked)->videos[1].parts.size(), 2u);
}

TEST_F(RecipeTest, MakesASampleOfARow) {
  const auto recipe = Make(
      "    c = record.columns\n"
      "    return recipe.Sample(conversation=c['turns'], images=["
      "record.media('image'), *record.media('list'), record.media('path')])\n");
  RecipeRecord record;
  record.kind = RecipeRecord::Kind::kRow;
  record.text =
      R"({"turns": [{"from": "human", "value": "q"}],
          "image": {"bytes": {"$ballast.media": 0}, "path": null},
          "list": [{"$ballast.media": 1}],
          "path": {"bytes": null, "path": "p.jpg"}})";
  record.parts = {{"image", 7, std::nullopt}, {"list", 8, std::nullopt}};
  const auto cooked = Cook(*recipe, record);
  ASSERT_TRUE(cooked.ok()) << cooked.status();
  EXPECT_EQ(
      Json::parse((*cooked)->text),
      Json::parse(R"({"conversations": [{"from": "human", "value": "q"}]})"));
  EXPECT_THAT((*cooked)->images,
              ElementsAre(CookedSample::Medium(0u), CookedSample::Medium(1u),
                          CookedSample::Medium("p.jpg")));
}

TEST_F(RecipeTest, NoneLeavesARecordOut) {
  const auto cooked = Cook(*Make("    return None\n"), Line("{}"));
  ASSERT_TRUE(cooked.ok()) << cooked.status();
  EXPECT_FALSE(cooked->has_value());
}

TEST_F(RecipeTest, RandomNumbersAndSetsAreTheSameInEveryProcess) {
  constexpr char kBody[] =
      "    r = record.random(7)\n"
      "    return recipe.Sample(text=repr([r.random(), r.randint(0, 9999),"
      " list({'aa', 'bb', 'cc', 'dd'}), recipe.Random(1, 'a').random()]))\n";
  const auto recipe = Make(kBody);
  const std::string first = (*Cook(*recipe, Line("{}")))->text;
  recipe->Restart();
  EXPECT_EQ((*Cook(*recipe, Line("{}")))->text, first);
  RecipeRecord other = Line("{}");
  other.name = "chat.jsonl:2";
  EXPECT_NE((*Cook(*recipe, other))->text, first);
}

TEST_F(RecipeTest, TheNameFollowsFromTextAndVersions) {
  const auto one = *Open(absl::StrCat(kImport, kCook, "    return None\n"));
  EXPECT_THAT(one->name(),
              ::testing::MatchesRegex("[0-9a-f]{32}\\+python-3.*"));
  const auto same = *Open(absl::StrCat(kImport, kCook, "    return None\n"));
  EXPECT_EQ(same->name(), one->name());
  const auto other = *Open(absl::StrCat(kImport, kCook, "    return None \n"));
  EXPECT_NE(other->name(), one->name());
  const auto missing =
      Open(absl::StrCat(kImport, "recipe.requires('no-such-package-here')\n",
                        kCook, "    pass\n"));
  EXPECT_TRUE(absl::IsFailedPrecondition(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("no-such-package-here"));
}

TEST_F(RecipeTest, RefusesWhatIsNoRecipe) {
  const auto refusal = [this](absl::string_view text) {
    const auto opened = Open(text);
    EXPECT_TRUE(absl::IsInvalidArgument(opened.status())) << opened.status();
    return std::string(opened.status().message());
  };
  EXPECT_THAT(refusal("def f(:\n"), HasSubstr("my_recipe.py, line 1: "));
  EXPECT_THAT(refusal("x = 1\n"), HasSubstr("no function with @recipe.cook"));
  EXPECT_THAT(refusal("\n\nx = 1 / 0\n"),
              HasSubstr("my_recipe.py, line 3, in <module>: `x = 1 / 0`: "
                        "ZeroDivisionError"));
  EXPECT_THAT(
      refusal(absl::StrCat(kImport, kCook, "    pass\n", kCook, "    pass\n")),
      HasSubstr("two functions with @recipe.cook"));
  EXPECT_TRUE(
      absl::IsNotFound(Recipe::Open(TestFolder() + "/none.py", {}).status()));
  const auto package = Open("import no_such_module_here\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(package.status()));
  EXPECT_THAT(std::string(package.status().message()),
              HasSubstr("No module named 'no_such_module_here'"));
}

TEST_F(RecipeTest, AnExceptionHasTheUsersFileAndLine) {
  EXPECT_THAT(
      Refusal(absl::StrCat(kIfSound, "    return record.json()['x']\n")),
      AllOf(HasSubstr("the recipe: my_recipe.py, line 5, in cook: "
                      "`return record.json()['x']`: KeyError: 'x'")));
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    helper(1)\n"), {},
                      "def helper(x):\n    raise ValueError('é' * x)\n"),
              AllOf(HasSubstr("line 7, in cook: `helper(1)`: my_recipe.py, "
                              "line 3, in helper"),
                    HasSubstr("ValueError: é")));
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    raise SystemExit(3)\n")),
              HasSubstr("SystemExit: 3"));
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    return 7\n")),
              HasSubstr("cook gave a int; wanted a recipe.Sample, or None"));
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    record.media('image')\n")),
              HasSubstr("KeyError: \"'image'; the record has "));
  EXPECT_THAT(
      Refusal(absl::StrCat(
          kIfSound, "    return recipe.Sample(text='x', images=[b'jpg'])\n")),
      HasSubstr("wanted what record.media(name) gives, or a path"));
  // Samples of recipes have images and videos; audio would have been left out
  // without a word.
  EXPECT_THAT(
      Refusal(absl::StrCat(
          kIfSound, "    return recipe.Sample(text='x', audios=['a.wav'])\n")),
      HasSubstr("'audios' of a Sample would not be read; wanted images=[...]"));
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    return recipe.Sample()\n")),
              HasSubstr("a Sample of 0 of messages, conversation and text"));
  EXPECT_THAT(
      Refusal(absl::StrCat(
          kIfSound, "    return recipe.Sample(messages=[float('nan')])\n")),
      HasSubstr("ValueError"));
}

// Another machine may be faster, so it never becomes a placeholder.
TEST_F(RecipeTest, AnEndlessLoopIsTransientAndCostsItsRecordAlone) {
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    while True:\n        pass\n"),
                      {.seconds = 0.2}, "", /*is_fault=*/false),
              AllOf(HasSubstr("my_recipe.py, line "), HasSubstr(", in cook"),
                    HasSubstr("more processor time")));
  // One that no exception ends.
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound,
                                   "    while True:\n"
                                   "        try:\n"
                                   "            while True: pass\n"
                                   "        except BaseException: pass\n"),
                      {.seconds = 0.2}, "", /*is_fault=*/false),
              HasSubstr("more processor time"));
}

TEST_F(RecipeTest, MemoryEndsAtALimit) {
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    x = bytearray(1 << 33)\n")),
              HasSubstr("more memory than a record may"));
  EXPECT_THAT(
      Refusal(absl::StrCat(
          kIfSound, "    return recipe.Sample(text='x' * (65 << 20))\n")),
      HasSubstr("wanted at most 67108864"));
}

TEST_F(RecipeTest, WhatEarlierRecordsHoldIsNoFaultOfALaterOne) {
  const auto recipe = Make(
      "    if 'large' in record.json(): held.append(bytes(1 << 33))\n"
      "    held.append(bytes(1 << 30))\n"
      "    return recipe.Sample(text='held')\n",
      {}, "held = []\n");
  for (int i = 0; i < 9; ++i) {
    const auto cooked = Cook(*recipe, Line("{}"));
    ASSERT_TRUE(cooked.ok()) << cooked.status();
  }
  const RecipeRecord small = Line("{}"), large = Line(R"({"large": 1})");
  const auto cooked = recipe->Cook({&small, &large, &small});
  EXPECT_TRUE(cooked[0].ok()) << cooked[0].status();
  EXPECT_TRUE(IsDataFault(cooked[1].status())) << cooked[1].status();
  EXPECT_THAT(cooked[1].status().message(),
              HasSubstr("my_recipe.py, line 5, in cook"));
  EXPECT_TRUE(cooked[2].ok()) << cooked[2].status();
}

TEST_F(RecipeTest, AnExitIsTheRecordsFault) {
  EXPECT_THAT(
      Refusal(absl::StrCat(kIfSound, "    os._exit(0)\n"), {}, "import os\n"),
      HasSubstr("ended on it twice (exit 0)"));
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    ctypes.string_at(0)\n"), {},
                      "import ctypes\n"),
              HasSubstr("ended on it twice (SIGSEGV)"));
}

TEST_F(RecipeTest, TheBoxHasNoFilesProcessesOrNetwork) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more system calls";
  if (!CanBoxHelpers()) GTEST_SKIP() << "this kernel has no seccomp";
  const std::string top = "import os, socket, subprocess\n";
  for (const char* body :
       {"    open('/etc/passwd')\n", "    open('/tmp/x', 'w')\n",
        "    os.fork()\n", "    subprocess.run(['id'])\n",
        "    socket.socket()\n", "    os.kill(os.getppid(), 9)\n",
        "    os.listdir('/')\n"}) {
    SCOPED_TRACE(body);
    EXPECT_THAT(Refusal(absl::StrCat(kIfSound, body), {}, top),
                AllOf(HasSubstr("PermissionError"),
                      HasSubstr("no files, network or processes")));
  }
  EXPECT_THAT(Refusal(absl::StrCat(kIfSound, "    import colorsys\n")),
              HasSubstr("import it at the top of the recipe"));
  // What the top of the file has read stays there.
  const auto recipe = Make("    return recipe.Sample(text=table)\n", {},
                           "table = open(__file__).read()[:6]\n");
  EXPECT_EQ((*Cook(*recipe, Line("{}")))->text, "import");
}

TEST_F(RecipeTest, OthersInTheSameRequestAreCooked) {
  const auto recipe = Make(
      "    if record.json() == 2: os._exit(1)\n"
      "    return recipe.Sample(text=record.text())\n",
      {}, "import os\n");
  std::vector<RecipeRecord> records;
  std::vector<const RecipeRecord*> pointers;
  for (int i = 0; i < 5; ++i) records.push_back(Line(absl::StrCat(i)));
  for (const RecipeRecord& record : records) pointers.push_back(&record);
  const auto cooked = recipe->Cook(pointers);
  for (int i = 0; i < 5; ++i) {
    if (i == 2) {
      EXPECT_TRUE(IsDataFault(cooked[i].status()));
      continue;
    }
    ASSERT_TRUE(cooked[i].ok()) << cooked[i].status();
    EXPECT_EQ((*cooked[i])->text, absl::StrCat(i));
  }
}

// The helpers of this process. Tests run one after another.
std::vector<pid_t> GetChildren() {
  std::vector<pid_t> children;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(task.path() / "children");
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

TEST_F(RecipeTest, AKilledProcessIsTransient) {
  const auto recipe = Make("    return recipe.Sample(text='x')\n");
  const std::vector<pid_t> children = GetChildren();
  if (children.empty()) GTEST_SKIP() << "this kernel does not list children";
  ASSERT_EQ(children.size(), 1u);
  EXPECT_TRUE(Cook(*recipe, Line("{}")).ok());
  kill(children[0], SIGKILL);
  EXPECT_TRUE(Cook(*recipe, Line("{}")).ok());
  EXPECT_NE(GetChildren(), children);
}

TEST_F(RecipeTest, SilenceIsTransient) {
  const auto recipe =
      Make("    time.sleep(1e9)\n", {.patience = absl::Milliseconds(400)},
           "import time\n");
  const auto cooked = Cook(*recipe, Line("{}"));
  EXPECT_TRUE(absl::IsUnavailable(cooked.status())) << cooked.status();
  EXPECT_FALSE(IsDataFault(cooked.status()));
}

TEST_F(RecipeTest, ThreadsThatTheTopStartsAreInTheBox) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more system calls";
  if (!CanBoxHelpers()) GTEST_SKIP() << "this kernel has no seccomp";
  const auto recipe = Make(
      "    go.set(); worker.join(); return recipe.Sample(text=said[0])\n", {},
      "import threading\n"
      "go = threading.Event(); said = []\n"
      "def work():\n"
      "    go.wait()\n"
      "    try: open('/etc/passwd'); said.append('opened')\n"
      "    except OSError as e: said.append(type(e).__name__)\n"
      "worker = threading.Thread(target=work, daemon=True)\n"
      "worker.start()\n");
  EXPECT_EQ((*Cook(*recipe, Line("{}")))->text, "PermissionError");
}

TEST_F(RecipeTest, PackagesOfAVirtualEnvironmentAreFound) {
  const std::string venv = TestFolder() + "/venv";
  std::filesystem::create_directories(venv + "/bin");
  WriteFile(venv + "/pyvenv.cfg", "home = /usr/bin\n");
  std::error_code error;
  std::filesystem::create_symlink("/usr/bin/python3", venv + "/bin/python3",
                                  error);
  if (error || !std::filesystem::exists("/usr/bin/python3")) {
    GTEST_SKIP() << "there is no /usr/bin/python3";
  }
  for (int minor = 8; minor < 30; ++minor) {
    const std::string packages =
        absl::StrCat(venv, "/lib/python3.", minor, "/site-packages");
    std::filesystem::create_directories(packages);
    WriteFile(packages + "/only_here.py", "SAID = 'from there'\n");
  }
  const std::string path = getenv("PATH");
  setenv("PATH", absl::StrCat(venv, "/bin:", path).c_str(), 1);
  const std::string recipe = ::testing::TempDir() + "/venv_recipe.py";
  WriteFile(recipe, absl::StrCat("import only_here\n", kImport, kCook,
                                 "    return recipe.Sample(text="
                                 "only_here.SAID)\n"));
  const auto opened = Recipe::Open(recipe, {});
  setenv("PATH", path.c_str(), 1);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*Cook(**opened, Line("{}")))->text, "from there");
}

TEST_F(RecipeTest, RecipesOfAProcessAreOpenedOnce) {
  const std::string path = TestFolder() + "/one.py";
  WriteFile(path, absl::StrCat(kImport, kCook, "    return None\n"));
  const auto one = Recipes::OfProcess().Get(path);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(*Recipes::OfProcess().Get(path), *one);
  WriteFile(path, absl::StrCat(kImport, kCook, "    pass\n"));
  const auto other = Recipes::OfProcess().Get(path);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*other)->name(), (*one)->name());
}

}  // namespace
}  // namespace ballast
