#include "client/ballastctl/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Grade = Finding::Grade;

NodeFacts Healthy() {
  NodeFacts node;
  node.shared_memory = uint64_t{64} << 30;
  node.shared_memory_free = uint64_t{32} << 30;
  node.open_files = 1 << 20;
  node.locked_memory = std::numeric_limits<uint64_t>::max();
  node.gpus = 8;
  node.has_nccl = true;
  node.has_nvjpeg = true;
  node.clock_is_kept = true;
  node.has_seccomp = true;
  node.c_library = "2.36";
  node.helpers_status = 0;
  node.helpers = R"({"helper":"v","reads":"videos","version":"FFmpeg 8.1.2"}
{"helper":"s","reads":"audio"}
)";
  return node;
}

ServerFacts Server(const std::string& address, const std::string& hash,
                   const std::string& micro) {
  ServerFacts server;
  server.address = address;
  v1::Fingerprint* fingerprint = server.attach.mutable_fingerprint();
  fingerprint->set_hash(hash);
  auto* entry = fingerprint->add_entries();
  entry->set_key("batch.micro");
  entry->set_value(micro);
  return server;
}

Finding Of(const std::vector<Finding>& findings, const std::string& subject) {
  for (const Finding& finding : findings) {
    if (finding.subject == subject) return finding;
  }
  ADD_FAILURE() << "nothing about " << subject;
  return {};
}

TEST(DiagnoseTest, AHealthyNodeNeedsNothing) {
  for (const Finding& finding : Diagnose(
           Healthy(), {Server("a:1", "x", "8"), Server("b:1", "x", "8")})) {
    EXPECT_EQ(finding.grade, Grade::kGood) << finding.subject;
    EXPECT_EQ(finding.advice, "") << finding.subject;
  }
}

TEST(DiagnoseTest, SaysWhatAServerSaysOfItself) {
  ServerFacts server = Server("a:1", "x", "8");
  auto& reads = server.problems.emplace_back();
  reads.set_kind("reads_fail");
  reads.set_subject("docs-2.tar");
  reads.set_text("cannot open");
  auto& certificate = server.problems.emplace_back();
  certificate.set_kind("certificate");
  certificate.set_text("ends tomorrow");
  const auto findings = Diagnose(Healthy(), {server});
  EXPECT_EQ(Of(findings, "server a:1 (reads_fail)").grade, Grade::kFault);
  EXPECT_EQ(Of(findings, "server a:1 (reads_fail)").found,
            "docs-2.tar: cannot open");
  EXPECT_EQ(Of(findings, "server a:1 (certificate)").grade, Grade::kWarning);
}

TEST(DiagnoseTest, NamesWhatTheHelpersLack) {
  EXPECT_EQ(Of(Diagnose(Healthy(), {}), "videos").found,
            "can be read here, by FFmpeg 8.1.2");
  NodeFacts node = Healthy();
  node.helpers_status = 1 << 8;
  node.helpers =
      "ballast-audio-decoder: error while loading shared libraries: "
      "libsoxr.so.0: cannot open shared object file\n"
      R"({"helper":"s","reads":"audio","error":"audio cannot be decoded here"})"
      "\nballast-server: 1 helper cannot run here\n";
  const Finding audio = Of(Diagnose(node, {}), "audio");
  EXPECT_EQ(audio.grade, Grade::kFault);
  EXPECT_EQ(audio.found, "audio cannot be decoded here");
  EXPECT_THAT(audio.advice, HasSubstr("install the wheel"));
}

// Status 127 and 1 of the loader, and SIGILL.
TEST(DiagnoseTest, NamesWhyTheServerCannotStart) {
  constexpr char kSubject[] = "video, audio, SentencePiece";
  NodeFacts node = Healthy();
  node.helpers_status = -1;
  EXPECT_EQ(Of(Diagnose(node, {}), kSubject).grade, Grade::kGood);
  node.helpers_status = 127 << 8;
  node.helpers = "libyaml-cpp.so.0.7: cannot open shared object file\n";
  Finding finding = Of(Diagnose(node, {}), kSubject);
  EXPECT_EQ(finding.grade, Grade::kFault);
  EXPECT_THAT(finding.found, HasSubstr("libyaml-cpp.so.0.7: cannot open"));
  EXPECT_THAT(finding.advice, HasSubstr("bring their libraries"));
  node.helpers_status = 1 << 8;
  node.helpers = "libc.so.6: version `GLIBC_2.34' not found (required by b)\n";
  finding = Of(Diagnose(node, {}), kSubject);
  EXPECT_THAT(finding.found, HasSubstr("`GLIBC_2.34' not found"));
  EXPECT_THAT(finding.advice, HasSubstr("need glibc 2.34"));
  node.helpers_status = SIGILL;
  node.helpers = "";
  finding = Of(Diagnose(node, {}), kSubject);
  EXPECT_THAT(finding.found, HasSubstr("SIGILL"));
  EXPECT_THAT(finding.advice, HasSubstr("newer processor"));
  node.has_sse42 = false;
  EXPECT_EQ(Of(Diagnose(node, {}), "processor").grade, Grade::kFault);
}

TEST(DiagnoseTest, AServerThatMayUseLessThanItKeepsTo) {
  NodeFacts node = Healthy();
  node.server_memory = uint64_t{20} << 30;
  node.server_machine_memory = uint64_t{20} << 30;
  EXPECT_EQ(Of(Diagnose(node, {}), "server memory").grade, Grade::kGood);
  node.server_machine_memory = uint64_t{16} << 30;
  const Finding finding = Of(Diagnose(node, {}), "server memory");
  EXPECT_EQ(finding.grade, Grade::kWarning);
  EXPECT_EQ(finding.found,
            "the first server keeps to 20.0 GiB and may use 16.0 GiB");
  EXPECT_THAT(finding.advice, HasSubstr("serve.decode_memory"));
}

TEST(DiagnoseTest, WhatIsScarceIsAWarningWithAdvice) {
  NodeFacts node = Healthy();
  node.shared_memory = 64 << 20;
  node.open_files = 1024;
  node.locked_memory = 8 << 20;
  node.clock_is_kept = false;
  node.has_seccomp = false;
  node.has_nccl = false;
  node.has_nvjpeg = false;
  const auto findings = Diagnose(node, {});
  for (const char* subject : {"shared memory", "open files", "locked memory",
                              "clock", "helpers", "NCCL", "nvJPEG"}) {
    const Finding finding = Of(findings, subject);
    EXPECT_EQ(finding.grade, Grade::kWarning) << subject;
    EXPECT_NE(finding.advice, "") << subject;
  }
  EXPECT_THAT(Of(findings, "shared memory").advice, HasSubstr("--shm-size"));
}

TEST(DiagnoseTest, FullSharedMemoryIsAWarningThoughItIsLarge) {
  NodeFacts node = Healthy();
  node.shared_memory_free = 0;
  EXPECT_EQ(Of(Diagnose(node, {}), "shared memory").grade, Grade::kWarning);
  node.shared_memory = 0;
  EXPECT_EQ(Of(Diagnose(node, {}), "shared memory").grade, Grade::kFault);
}

TEST(DiagnoseTest, WithoutGpusNothingAboutThemIsWrong) {
  NodeFacts node = Healthy();
  node.gpus = 0;
  node.has_nccl = false;
  node.locked_memory = 8 << 20;
  for (const Finding& finding : Diagnose(node, {})) {
    EXPECT_EQ(finding.grade, Grade::kGood) << finding.subject;
  }
}

TEST(DiagnoseTest, ServersOfOtherConfigurationsAreFaults) {
  ServerFacts away;
  away.address = "c:1";
  away.status = absl::UnavailableError("connection refused");
  ServerFacts refuses = Server("d:1", "x", "8");
  refuses.attach.set_refusal("another server has another index");
  ServerFacts hangs = Server("e:1", "x", "8");
  hangs.health = absl::UnavailableError("not serving");
  const auto findings =
      Diagnose(Healthy(), {away, Server("a:1", "x", "8"),
                           Server("b:1", "y", "16"), refuses, hangs});
  EXPECT_EQ(Of(findings, "server a:1").grade, Grade::kGood);
  const Finding other = Of(findings, "server b:1");
  EXPECT_EQ(other.grade, Grade::kFault);
  EXPECT_THAT(other.found, HasSubstr("batch.micro"));
  EXPECT_THAT(Of(findings, "server c:1").found, HasSubstr("refused"));
  EXPECT_THAT(Of(findings, "server d:1").found, HasSubstr("another index"));
  EXPECT_EQ(Of(findings, "server e:1").grade, Grade::kFault);
}

constexpr char kNobody[] = "unix:nobody.sock";

TEST(HealthTest, AsksAgainUntilTheServerServes) {
  const std::unique_ptr<FakeLoaderServer> server = FakeLoaderServer::Start();
  ManualClock clock;
  int connects = 0;
  const auto connect = [&]() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
    // The server starts between the second attempt and the third.
    return LoaderClient::Create(++connects < 3 ? kNobody : server->address());
  };
  std::ostringstream out;
  absl::Status status = absl::UnknownError("not asked");
  std::thread thread(
      [&] { status = AwaitHealth(connect, absl::Seconds(60), &clock, &out); });
  for (int i = 0; i < 2; ++i) {
    clock.AwaitSleepers(1);
    EXPECT_EQ(out.str(), "");
    clock.Advance(clock.sleeps().back());
  }
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(out.str(), "serving\n");
  EXPECT_EQ(connects, 3);
}

TEST(HealthTest, WithoutTimeToWaitItAsksOnce) {
  ManualClock clock;
  int connects = 0;
  std::ostringstream out;
  const absl::Status status = AwaitHealth(
      [&]() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
        ++connects;
        return LoaderClient::Create(kNobody);
      },
      absl::ZeroDuration(), &clock, &out);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(connects, 1);
  EXPECT_EQ(out.str(), "");
}

TEST(HealthTest, AServerThatDoesNotServeIsAlive) {
  const std::unique_ptr<FakeLoaderServer> server = FakeLoaderServer::Start();
  server->SetServing(false);
  ManualClock clock;
  for (const Wanted wanted : {Wanted::kAlive, Wanted::kServing}) {
    std::ostringstream out;
    const absl::Status status = AwaitHealth(
        [&]() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
          return LoaderClient::Create(server->address());
        },
        absl::ZeroDuration(), &clock, &out, wanted);
    const bool alive = wanted == Wanted::kAlive;
    EXPECT_EQ(status.ok(), alive) << status;
    EXPECT_EQ(out.str(), alive ? "not serving\n" : "");
  }
}

TEST(HealthTest, LastingErrorsEndItAtOnce) {
  ManualClock clock;
  std::ostringstream out;
  const absl::Status status = AwaitHealth(
      []() -> absl::StatusOr<std::unique_ptr<LoaderClient>> {
        return LoaderClient::Create("nonsense");
      },
      absl::Seconds(60), &clock, &out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace ballast
