#include "server/serve/http/pages.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/instruments.h"
#include "server/serve/monitor/server_state.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

TEST(HistoryJsonTest, NamesItsColumns) {
  ManualClock clock;
  const auto history = StateHistory::Start(
      [] {
        v1::MetricFamily step;
        step.set_name("ballast_step");
        step.add_metrics()->set_number(7);
        return std::vector<v1::MetricFamily>{step};
      },
      absl::UnixEpoch() + absl::Seconds(50), &clock);
  ASSERT_TRUE(history.ok()) << history.status();
  // A name may be any bytes.
  const auto json = nlohmann::json::parse(
      HistoryJson("node-\xFF", **history, absl::Hours(1)));
  EXPECT_EQ(json["ballast_history"], 1);
  EXPECT_EQ(json["server"], "node-\xEF\xBF\xBD");
  EXPECT_EQ(json["start"], 50);
  EXPECT_EQ(json["columns"].size(), 1 + HistoryPoint::kColumns.size());
  EXPECT_EQ(json["columns"][0], "seconds");
  EXPECT_EQ(json["columns"][1], "step");
  ASSERT_EQ(json["points"].size(), 1);
  ASSERT_EQ(json["points"][0].size(), json["columns"].size());
  EXPECT_EQ(json["points"][0][0], 50);
  EXPECT_EQ(json["points"][0][1], 7);
  EXPECT_TRUE(json["points"][0][2].is_null());
}

TEST(PageJsonTest, ShowsAnIdleServer) {
  const json page = json::parse(PageJson({}, {}, nullptr, {}));
  EXPECT_TRUE(page["step"].is_null());
  EXPECT_TRUE(page["balance"].is_null());
  EXPECT_TRUE(page["history"].empty());
  EXPECT_EQ(page["clients_total"], 0);
}

TEST(PageJsonTest, ListsNumbersAndTimesByName) {
  FamilyList list;
  list.Begin("a_total", FamilyList::kCounter, "");
  list.Add(3, {{"way", "stream"}, {"module", "vision"}});
  DurationHistogram histogram;
  for (int i = 0; i < 4; ++i) histogram.Record(absl::Milliseconds(2));
  list.Begin("b_seconds", FamilyList::kHistogram, "");
  list.Add(histogram.Read());
  const json page =
      json::parse(PageJson({}, std::move(list).Take(), nullptr, {}));
  EXPECT_EQ(page["numbers"]["a_total way=stream module=vision"], 3);
  const json& times = page["times"][0];
  EXPECT_EQ(times["name"], "b_seconds");
  EXPECT_EQ(times["count"], 4);
  EXPECT_DOUBLE_EQ(times["sum"].get<double>(), 0.008);
  EXPECT_DOUBLE_EQ(times["p50"].get<double>(), 0.00175);
}

// 1000 ranks in bars of four: each shows the largest load.
TEST(PageJsonTest, BarsAreBounded) {
  v1::StepBalance balance;
  balance.set_step(9);
  v1::ModuleBalance& vision = *balance.add_modules();
  vision.set_module(v1::MODULE_VISION);
  for (int r = 0; r < 1000; ++r) {
    vision.add_load_before(r);
    vision.add_load_after(1000 - r);
  }
  const auto past = std::make_shared<const v1::StepBalance>(balance);
  const json page = json::parse(PageJson({}, {}, &balance, {past, past}));
  const json& module = page["balance"]["modules"][0];
  EXPECT_EQ(module["ranks"], 1000);
  EXPECT_EQ(module["ranks_a_bar"], 4);
  ASSERT_EQ(module["before"].size(), 250u);
  EXPECT_EQ(module["before"][1], 7);
  EXPECT_EQ(module["after"][1], 996);
  EXPECT_EQ(page["history"].size(), 2u);
  EXPECT_FALSE(page["history"][0]["modules"][0].contains("before"));
}

TEST(PageJsonTest, BoundsListsAndReplacesHostileNames) {
  v1::GetStatusResponse status;
  for (int i = 0; i < 500; ++i) {
    auto* bad = status.add_bad_samples();
    bad->set_file("</script><img src=x onerror=alert(1)>\xff");
    bad->set_reason("\"quoted\"\n");
    status.add_clients()->set_lag(i);
    status.add_stalls();
  }
  status.add_problems()->set_subject("a\xff.tar");
  const json page = json::parse(PageJson(status, {}, nullptr, {}));
  EXPECT_EQ(page["bad_samples"].size(), 100u);
  EXPECT_EQ(page["bad_samples_total"], 500);
  EXPECT_EQ(page["clients"].size(), 100u);
  EXPECT_EQ(page["stalls"].size(), 100u);
  EXPECT_EQ(page["problems"][0]["subject"], "a\ufffd.tar");
  EXPECT_EQ(page["bad_samples"][0]["reason"], "\"quoted\"\n");
}

PageSources Sources() {
  PageSources sources;
  sources.metrics = [] { return "a_metric 1\n"; };
  sources.status = [] { return "{}"; };
  sources.history = [](absl::Duration range) {
    return absl::StrCat("[", absl::ToInt64Seconds(range), "]");
  };
  sources.compared = [](size_t server, absl::Duration range) {
    return absl::StrCat("[", server, ",", absl::ToInt64Seconds(range), "]");
  };
  return sources;
}

HttpRequest Get(const std::string& path) {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.host = "127.0.0.1:9464";
  return request;
}

TEST(PagesTest, ServesThePageTheMetricsAndTheStatus) {
  const HttpServer::Handler pages = MakePages(Sources());
  const HttpResponse page = pages(Get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  const HttpResponse metrics = pages(Get("/metrics"));
  EXPECT_EQ(metrics.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(metrics.body, "a_metric 1\n");
  const HttpResponse status = pages(Get("/api/status"));
  EXPECT_EQ(status.content_type, "application/json");
  EXPECT_EQ(status.body, "{}");
}

TEST(PagesTest, ServesTheHistoryOfARange) {
  const HttpServer::Handler pages = MakePages(Sources());
  HttpRequest request = Get("/api/history");
  request.query["seconds"] = "3600";
  EXPECT_EQ(pages(request).content_type, "application/json");
  EXPECT_EQ(pages(request).body, "[3600]");
  for (const char* seconds : {"", "59", "86401", "-60", "1e3", "99999999999"}) {
    request.query["seconds"] = seconds;
    EXPECT_EQ(pages(request).status, 400) << seconds;
  }
  EXPECT_EQ(pages(Get("/api/history")).status, 400);
}

TEST(PagesTest, ServesTheHistoryOfAnotherServer) {
  const HttpServer::Handler pages = MakePages(Sources());
  HttpRequest request = Get("/api/compared");
  EXPECT_EQ(pages(request).status, 400);
  request.query["seconds"] = "900";
  EXPECT_EQ(pages(request).content_type, "application/json");
  EXPECT_EQ(pages(request).body, "[0,900]");
  request.query["server"] = "3";
  EXPECT_EQ(pages(request).body, "[3,900]");
  for (const char* server : {"", "-1", "x", "99999999999"}) {
    request.query["server"] = server;
    EXPECT_EQ(pages(request).body, absl::StrCat("[", SIZE_MAX, ",900]"));
  }
}

// The page may run its own script and nothing else, and contains nothing that
// would request anything from another host.
TEST(PagesTest, ThePageLoadsNothingFromOtherHosts) {
  const HttpResponse page = MakePages(Sources())(Get("/"));
  EXPECT_THAT(
      page.headers,
      AllOf(HasSubstr("default-src 'none'"), HasSubstr("script-src 'sha256-"),
            HasSubstr("connect-src 'self'"),
            HasSubstr("frame-ancestors 'none'"), Not(HasSubstr("unsafe"))));
  std::string body = page.body;
  const std::string svg = "'http://www.w3.org/2000/svg'";  // only a name
  ASSERT_NE(body.find(svg), std::string::npos);
  body.erase(body.find(svg), svg.size());
  for (const char* outside :
       {"http:", "https:", "src=", "@import", "url(", "innerHTML", "outerHTML",
        "insertAdjacentHTML", "document.write", "eval(", "localStorage",
        " style="}) {
    EXPECT_THAT(body, Not(HasSubstr(outside)));
  }
}

TEST(PagesTest, RefusesOtherPathsAndMethods) {
  const HttpServer::Handler pages = MakePages(Sources());
  for (const char* path : {"/index.html", "/metrics/", "//", "/../etc/passwd",
                           "/api", "", "/api/status/x"}) {
    EXPECT_EQ(pages(Get(path)).status, 404) << path;
  }
  HttpRequest post = Get("/metrics");
  post.method = "POST";
  EXPECT_EQ(pages(post).status, 405);
  EXPECT_THAT(pages(post).headers, HasSubstr("Allow: GET, HEAD"));
}

TEST(PagesTest, RequiresATokenForAllButThePage) {
  PageSources sources = Sources();
  sources.check = [](const std::optional<std::string>& authorization) {
    if (authorization == "Bearer of-this-job") return absl::OkStatus();
    if (authorization == "Bearer of-another") {
      return absl::PermissionDeniedError("another job's");
    }
    return absl::UnauthenticatedError("no token");
  };
  const HttpServer::Handler pages = MakePages(std::move(sources));
  EXPECT_EQ(pages(Get("/")).status, 200);
  for (const char* path : {"/metrics", "/api/status", "/api/history"}) {
    HttpRequest request = Get(path);
    request.query["seconds"] = "60";
    const HttpResponse refused = pages(request);
    EXPECT_EQ(refused.status, 401);
    EXPECT_THAT(refused.headers, HasSubstr("WWW-Authenticate: Bearer"));
    EXPECT_EQ(refused.body, "no token\n");
    request.authorization = "Bearer of-another";
    EXPECT_EQ(pages(request).status, 403);
    request.authorization = "Bearer of-this-job";
    EXPECT_EQ(pages(request).status, 200);
  }
}

TEST(PagesTest, ALocalServerRefusesForeignHostNames) {
  PageSources sources = Sources();
  const HttpServer::Handler local = MakePages(sources);
  sources.is_local = false;
  const HttpServer::Handler open = MakePages(sources);
  HttpRequest request = Get("/metrics");
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80",
                           "127.0.0.1:9464"}) {
    request.host = host;
    EXPECT_EQ(local(request).status, 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:9464", "", ":1",
                           "127.0.0.1.evil.example", "localhost.evil:2"}) {
    request.host = host;
    EXPECT_EQ(local(request).status, 421) << host;
    EXPECT_EQ(open(request).status, 200) << host;
  }
}

// A connection to `address`; the caller closes it.
int Connect(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.find(':') + 1), &port));
  to.sin_port = htons(port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// The bytes that a client that sends `text` gets until the server closes.
std::string Ask(const std::string& address, const std::string& text) {
  const int fd = Connect(address);
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), text.size());
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, n);
  }
  close(fd);
  return answer;
}

TEST(HttpServerTest, ServesOverTcp) {
  const auto server = HttpServer::Start("localhost:0", MakePages(Sources()));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  EXPECT_THAT(address, StartsWith("127.0.0.1:"));
  EXPECT_THAT(
      Ask(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
            HasSubstr("Content-Length: 11\r\n"),
            HasSubstr("X-Content-Type-Options: nosniff\r\n"),
            HasSubstr("\r\n\r\na_metric 1\n")));
  EXPECT_THAT(
      Ask(address, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
      AllOf(HasSubstr("Content-Length: 11\r\n"), Not(HasSubstr("a_metric"))));
  EXPECT_THAT(Ask(address, "GET /%2e%2e/etc/passwd HTTP/1.0\r\n\r\n"),
              Not(HasSubstr("root")));
  EXPECT_THAT(Ask(address, "nonsense\r\n\r\n"), Not(HasSubstr("200 OK")));
  // The request exceeds what the server reads of one.
  EXPECT_THAT(Ask(address, absl::StrCat("GET / HTTP/1.1\r\nX: ",
                                        std::string(20'000, 'x'))),
              Not(HasSubstr("200 OK")));
}

TEST(HttpServerTest, AnswersWhileOtherClientsAreSilent) {
  auto server = HttpServer::Start("localhost:0", MakePages(Sources()));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  std::vector<int> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(Connect(address));
  for (const int fd : silent) {
    EXPECT_EQ(send(fd, "GET / HT", 8, MSG_NOSIGNAL), 8);
  }
  EXPECT_THAT(Ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  // The silent clients do not keep it from stopping.
  server->reset();
  for (const int fd : silent) close(fd);
}

// 48 connections is the most at a time. The oldest that have asked nothing make
// room: else four times 48 would keep others away four times as long as each
// may be silent, which is 3 s.
TEST(HttpServerTest, SilentClientsMakeRoom) {
  auto server = HttpServer::Start("localhost:0", MakePages(Sources()));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const absl::Time start = absl::Now();
  std::vector<int> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Connect(address));
  EXPECT_THAT(Ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(6));
  for (const int fd : silent) {
    char byte;
    EXPECT_LE(recv(fd, &byte, 1, 0), 0);  // closed, without an answer
    close(fd);
  }
}

TEST(HttpServerTest, SaysWhyItRefusesARequest) {
  const auto server = HttpServer::Start("localhost:0", MakePages(Sources()));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  for (const char* twice : {"Host: localhost\r\nHost: evil.example\r\n",
                            "Host: localhost\r\nX: y\r\nhost: localhost\r\n"}) {
    EXPECT_THAT(
        Ask(address, absl::StrCat("GET /metrics HTTP/1.1\r\n", twice, "\r\n")),
        AllOf(StartsWith("HTTP/1.1 400 Bad Request\r\n"),
              HasSubstr("more than one header Host; wanted one")));
  }
  EXPECT_THAT(Ask(address,
                  "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
                  "Authorization: Bearer a\r\n"
                  "Authorization: Bearer b\r\n\r\n"),
              HasSubstr("more than one header Authorization"));
  EXPECT_THAT(Ask(address, "nonsense\r\n\r\n"),
              StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(
      Ask(address, "GET /% HTTP/1.1\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("cannot be decoded")));
  EXPECT_THAT(Ask(address, absl::StrCat("GET / HTTP/1.1\r\nX: ",
                                        std::string(16'384, 'x'))),
              StartsWith("HTTP/1.1 431 "));
  // What comes behind the headers is not read; nobody sends us this much.
  const auto with_body = [](const char* bytes) {
    return absl::StrCat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n",
                        "Content-Length: ", bytes, "\r\n\r\n");
  };
  EXPECT_THAT(Ask(address, with_body("1000")),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask(address, with_body("1000000000")),
              StartsWith("HTTP/1.1 400 "));
}

TEST(HttpServerTest, RefusesImpossibleAddresses) {
  for (const char* address :
       {"unix:/a", "::1:0", "[::1]", "[127.0.0.1]:0", "127.0.0.1"}) {
    const auto server = HttpServer::Start(address, MakePages(Sources()));
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(server.status().message(), HasSubstr(address));
  }
  const auto nowhere =
      HttpServer::Start("no-such-host.invalid:0", MakePages(Sources()));
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(nowhere.status().message(), HasSubstr("no-such-host.invalid"));
  const auto one = HttpServer::Start("127.0.0.1:0", MakePages(Sources()));
  ASSERT_TRUE(one.ok());
  const auto two = HttpServer::Start((*one)->address(), MakePages(Sources()));
  EXPECT_EQ(two.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(two.status().message(), HasSubstr((*one)->address()));
}

TEST(PrometheusTextTest, WritesTheTextFormat) {
  FamilyList list;
  list.Begin("a_bytes_total", FamilyList::kCounter, "Bytes.");
  list.Add(12, {{"way", "stream"}});
  list.Begin("empty", FamilyList::kGauge, "Has no metric.");
  list.Begin("b", FamilyList::kGauge, "A gauge.");
  list.Add(0.5, {{"name", "a \"quoted\"\nbackslash \\"}});
  DurationHistogram histogram;
  histogram.Record(absl::Milliseconds(2));
  histogram.Record(absl::Milliseconds(2));
  histogram.Record(absl::Hours(2));
  list.Begin("c_seconds", FamilyList::kHistogram, "Times.");
  list.Add(histogram.Read());
  const std::string text = PrometheusText(std::move(list).Take());
  EXPECT_THAT(text, HasSubstr("# HELP a_bytes_total Bytes.\n"
                              "# TYPE a_bytes_total counter\n"
                              "a_bytes_total{way=\"stream\"} 12\n"
                              "# HELP b A gauge.\n# TYPE b gauge\n"));
  EXPECT_THAT(text,
              HasSubstr("b{name=\"a \\\"quoted\\\"\\nbackslash \\\\\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"0.0025\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"60\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("c_seconds_bucket{le=\"+Inf\"} 3\n"));
}

TEST(RequestTargetTest, DecodesPathAndQuery) {
  const auto target =
      ParseRequestTarget("/a%20b+c?x=1+2&y=%C3%A9%2B&z&=no&x=3&w=a=b");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, "/a b+c");
  EXPECT_THAT(target->query,
              ElementsAre(Pair("w", "a=b"), Pair("x", "3"),
                          Pair("y", "\xC3\xA9+"), Pair("z", "")));
}

TEST(RequestTargetTest, AQuestionMarkEndsThePathOnce) {
  EXPECT_EQ(ParseRequestTarget("/a%3Fb?c=d?e")->path, "/a?b");
  EXPECT_EQ(ParseRequestTarget("/a?c=d?e")->query.at("c"), "d?e");
  EXPECT_TRUE(ParseRequestTarget("/a?")->query.empty());
}

TEST(RequestTargetTest, RefusesWhatItCannotDecode) {
  for (const char* text :
       {"", "a", "*", "http://h/a", "/%", "/%4", "/%4g", "/%00", "/a%2"}) {
    EXPECT_FALSE(ParseRequestTarget(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseRequestTarget(std::string("/\0", 2)).has_value());
  // A parameter that cannot be decoded leaves the others as they are.
  EXPECT_THAT(ParseRequestTarget("/?a=%zz&b=1")->query,
              ElementsAre(Pair("a", ""), Pair("b", "1")));
}

}  // namespace
}  // namespace ballast
