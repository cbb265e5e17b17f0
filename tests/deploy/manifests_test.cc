// The manifests of deploy/kubernetes and the other configurations in deploy:
// every name that one refers to is defined by another. (Their schemas are the
// API's; docs/deployment.md says how they are checked.)

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr char kFolder[] = "deploy/kubernetes";

class ManifestsTest : public ::testing::Test {
 protected:
  ManifestsTest() {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(kFolder)) {
      if (entry.is_directory()) continue;
      const std::string name =
          std::filesystem::path(entry.path()).lexically_relative(kFolder);
      for (const YAML::Node& object : YAML::LoadAllFromFile(entry.path())) {
        files_.insert(name);
        if (name == "kustomization.yaml") {
          kustomization_ = object;
        } else if (name == "tier/kustomization.yaml") {
          tier_ = object;
        } else {
          objects_[absl::StrCat(Text(object["kind"]), "/",
                                Text(object["metadata"]["name"]))] = object;
        }
      }
    }
  }

  static std::string Text(const YAML::Node& node) {
    return node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
  }

  // The pod template of a DaemonSet, StatefulSet or Job.
  YAML::Node Pod(const std::string& key) const {
    return objects_.at(key)["spec"]["template"];
  }
  std::vector<std::pair<std::string, YAML::Node>> Pods() const {
    std::vector<std::pair<std::string, YAML::Node>> pods;
    for (const auto& [key, object] : objects_) {
      if (object["spec"] && object["spec"]["template"]) {
        pods.push_back({key, Pod(key)});
      }
    }
    return pods;
  }

  // True if a pod of `key` has these labels.
  bool Selects(const YAML::Node& labels, const std::string& key) const {
    const YAML::Node has = Pod(key)["metadata"]["labels"];
    for (const auto& label : labels) {
      if (Text(has[label.first.Scalar()]) != Text(label.second)) return false;
    }
    return labels.size() > 0;
  }

  // The mount path of each volume of the pod.
  static std::map<std::string, std::string> Mounts(const YAML::Node& pod) {
    std::map<std::string, std::string> mounts;
    for (const auto& mount : pod["spec"]["containers"][0]["volumeMounts"]) {
      mounts[Text(mount["name"])] = Text(mount["mountPath"]);
    }
    return mounts;
  }

  v1::Config Configuration() const {
    const auto config = ParseConfig(
        Text(objects_.at("ConfigMap/ballast-config")["data"]["ballast.yaml"]),
        "ballast.yaml", "/etc/ballast");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->config : v1::Config();
  }

  std::set<std::string> files_;
  YAML::Node kustomization_;
  YAML::Node tier_;  // its kustomization
  std::map<std::string, YAML::Node> objects_;
};

TEST_F(ManifestsTest, AllThatAClusterNeedsIsThere) {
  std::vector<std::string> keys;
  for (const auto& [key, object] : objects_) {
    keys.push_back(key);
    const std::string space = Text(object["metadata"]["namespace"]);
    EXPECT_EQ(space, key == "Namespace/ballast" ? "" : "ballast") << key;
    EXPECT_EQ(Text(object["metadata"]["labels"]["app.kubernetes.io/part-of"]),
              "ballast")
        << key;
  }
  EXPECT_THAT(keys, IsSupersetOf({
                        "ConfigMap/ballast-config",
                        "DaemonSet/ballast-server",
                        "Job/ballast-training",
                        "NetworkPolicy/ballast-server",
                        "PodDisruptionBudget/ballast-server",
                        "Secret/ballast-tls",
                        "Secret/ballast-tokens",
                        "Service/ballast-meeting",
                        "Service/ballast-server",
                        "StatefulSet/ballast-meeting",
                    }));
  EXPECT_EQ(Text(objects_["Service/ballast-server"]["spec"]["clusterIP"]),
            "None");
  for (const auto& file : kustomization_["resources"]) {
    EXPECT_THAT(files_, Contains(Text(file)));
  }
}

TEST_F(ManifestsTest, SelectorsFindThePods) {
  const std::string server = "DaemonSet/ballast-server";
  for (const YAML::Node& labels :
       {objects_[server]["spec"]["selector"]["matchLabels"],
        objects_["Service/ballast-server"]["spec"]["selector"],
        objects_["PodDisruptionBudget/ballast-server"]["spec"]["selector"]
                ["matchLabels"],
        objects_["PodMonitor/ballast-server"]["spec"]["selector"]
                ["matchLabels"],
        objects_["NetworkPolicy/ballast-server"]["spec"]["podSelector"]
                ["matchLabels"]}) {
    EXPECT_TRUE(Selects(labels, server)) << labels;
  }
  // The policy must admit the job's ranks.
  bool lets_in = false;
  const YAML::Node ingress =
      objects_["NetworkPolicy/ballast-server"]["spec"]["ingress"];
  for (const auto& peer : ingress[0]["from"]) {
    lets_in |=
        Selects(peer["podSelector"]["matchLabels"], "Job/ballast-training");
  }
  EXPECT_TRUE(lets_in);
}

// Ranks of two nodes, each of which asks its own node's server, meet only if
// these pass them on to one place.
TEST_F(ManifestsTest, GroupsMeetAtOneServer) {
  const std::string meeting = "StatefulSet/ballast-meeting";
  const YAML::Node service = objects_["Service/ballast-meeting"]["spec"];
  EXPECT_EQ(Configuration().topology().meeting(),
            absl::StrCat("ballast-meeting.ballast.svc:",
                         Text(service["ports"][0]["port"])));
  EXPECT_EQ(Text(objects_[meeting]["spec"]["replicas"]), "1");
  EXPECT_EQ(Text(objects_[meeting]["spec"]["serviceName"]), "ballast-meeting");
  for (const YAML::Node& labels :
       {service["selector"],
        objects_[meeting]["spec"]["selector"]["matchLabels"]}) {
    EXPECT_TRUE(Selects(labels, meeting)) << labels;
    EXPECT_FALSE(Selects(labels, "DaemonSet/ballast-server")) << labels;
  }
  // No rank reads from it.
  EXPECT_FALSE(
      Selects(objects_["Service/ballast-server"]["spec"]["selector"], meeting));
  // It serves the same configuration, where the other servers may reach it.
  const YAML::Node container = Pod(meeting)["spec"]["containers"][0];
  const YAML::Node server =
      Pod("DaemonSet/ballast-server")["spec"]["containers"][0];
  EXPECT_EQ(YAML::Dump(container["args"]), YAML::Dump(server["args"]));
  EXPECT_EQ(YAML::Dump(container["ports"]), YAML::Dump(server["ports"]));
  EXPECT_EQ(Mounts(Pod(meeting)), Mounts(Pod("DaemonSet/ballast-server")));
  const YAML::Node policy = objects_["NetworkPolicy/ballast-server"]["spec"];
  for (const YAML::Node& peer : {policy, policy["ingress"][0]["from"][0],
                                 policy["egress"][0]["to"][0]}) {
    for (const char* pod :
         {"DaemonSet/ballast-server", "StatefulSet/ballast-meeting"}) {
      EXPECT_TRUE(Selects(peer["podSelector"]["matchLabels"], pod)) << pod;
    }
  }
}

// A loader of the tier is a server as a node's, found by its own name, and as
// many run as they say that they need.
TEST_F(ManifestsTest, ATierGrowsByWhatItsServersWant) {
  for (const auto& file : tier_["resources"]) {
    EXPECT_THAT(files_, Contains(absl::StrCat("tier/", Text(file))));
  }
  const std::string loaders = "Deployment/ballast-loaders";
  const YAML::Node service = objects_["Service/ballast-loaders"]["spec"];
  EXPECT_EQ(Text(service["clusterIP"]), "None");
  for (const YAML::Node& labels :
       {objects_[loaders]["spec"]["selector"]["matchLabels"],
        service["selector"],
        objects_["PodDisruptionBudget/ballast-loaders"]["spec"]["selector"]
                ["matchLabels"],
        objects_["NetworkPolicy/ballast-server"]["spec"]["podSelector"]
                ["matchLabels"]}) {
    EXPECT_TRUE(Selects(labels, loaders)) << labels;
  }
  EXPECT_FALSE(
      Selects(objects_["Service/ballast-server"]["spec"]["selector"], loaders));
  const YAML::Node container = Pod(loaders)["spec"]["containers"][0];
  const YAML::Node server =
      Pod("DaemonSet/ballast-server")["spec"]["containers"][0];
  for (const char* key : {"args", "ports", "env", "readinessProbe",
                          "livenessProbe", "resources"}) {
    EXPECT_EQ(YAML::Dump(container[key]), YAML::Dump(server[key])) << key;
  }
  EXPECT_EQ(Mounts(Pod(loaders)), Mounts(Pod("DaemonSet/ballast-server")));
  // A drain ends within the grace period.
  EXPECT_EQ(Text(Pod(loaders)["spec"]["terminationGracePeriodSeconds"]), "30");

  const v1::Config config = Configuration();
  const std::string threads = absl::StrCat(config.serve().threads());
  const YAML::Node scaler =
      objects_["HorizontalPodAutoscaler/ballast-loaders"]["spec"];
  EXPECT_EQ(Text(scaler["scaleTargetRef"]["kind"]), "Deployment");
  EXPECT_EQ(Text(scaler["scaleTargetRef"]["name"]), "ballast-loaders");
  const YAML::Node pods = scaler["metrics"][0]["pods"];
  EXPECT_EQ(Text(pods["metric"]["name"]), "ballast_wanted_workers");
  EXPECT_EQ(Text(pods["target"]["averageValue"]), threads);
  const YAML::Node keda = objects_["ScaledObject/ballast-loaders"]["spec"];
  EXPECT_EQ(Text(keda["scaleTargetRef"]["name"]), "ballast-loaders");
  const YAML::Node trigger = keda["triggers"][0]["metadata"];
  EXPECT_THAT(Text(trigger["query"]), HasSubstr("ballast_wanted_workers"));
  EXPECT_EQ(Text(trigger["threshold"]), threads);
  // Two autoscalers of one Deployment would fight.
  for (const auto& file : tier_["resources"]) {
    EXPECT_NE(Text(file), "keda.yaml");
  }
}

// Every shard is read once, and the merge sees what they wrote.
TEST_F(ManifestsTest, ShardsOfTheIndexAreAllRead) {
  const YAML::Node job = objects_["Job/ballast-index-shards"]["spec"];
  EXPECT_EQ(Text(job["completionMode"]), "Indexed");
  const YAML::Node command =
      Pod("Job/ballast-index-shards")["spec"]["containers"][0]["command"];
  EXPECT_THAT(Text(command[2]),
              HasSubstr(absl::StrCat("--shard \"$((JOB_COMPLETION_INDEX + 1))/",
                                     Text(job["completions"]), "\"")));
  EXPECT_EQ(Mounts(Pod("Job/ballast-index-shards")),
            Mounts(Pod("Job/ballast-index")));
  EXPECT_EQ(Mounts(Pod("Job/ballast-index-merge")),
            Mounts(Pod("Job/ballast-index")));
}

TEST_F(ManifestsTest, VolumesAndWhatTheyComeFromAreDefined) {
  for (const auto& [key, pod] : Pods()) {
    std::set<std::string> volumes;
    for (const auto& volume : pod["spec"]["volumes"]) {
      volumes.insert(Text(volume["name"]));
      if (volume["configMap"]) {
        EXPECT_TRUE(objects_.count(
            absl::StrCat("ConfigMap/", Text(volume["configMap"]["name"]))));
      }
      if (volume["secret"]) {
        EXPECT_TRUE(objects_.count(
            absl::StrCat("Secret/", Text(volume["secret"]["secretName"]))));
      }
    }
    for (const char* kind : {"initContainers", "containers"}) {
      for (const auto& container : pod["spec"][kind]) {
        for (const auto& mount : container["volumeMounts"]) {
          EXPECT_THAT(volumes, Contains(Text(mount["name"]))) << key;
        }
      }
    }
  }
}

TEST_F(ManifestsTest, NobodyRunsWithMoreThanItNeeds) {
  for (const auto& [key, pod] : Pods()) {
    EXPECT_EQ(Text(pod["spec"]["securityContext"]["runAsNonRoot"]), "true");
    EXPECT_EQ(Text(pod["spec"]["automountServiceAccountToken"]), "false");
    for (const auto& container : pod["spec"]["containers"]) {
      const YAML::Node security = container["securityContext"];
      EXPECT_EQ(Text(security["allowPrivilegeEscalation"]), "false") << key;
      EXPECT_EQ(Text(security["readOnlyRootFilesystem"]), "true") << key;
      EXPECT_EQ(Text(security["capabilities"]["drop"][0]), "ALL") << key;
      EXPECT_NE(Text(container["resources"]["limits"]["memory"]), "") << key;
    }
  }
}

TEST_F(ManifestsTest, ServersAndRanksMeetWhereTheConfigurationSays) {
  const v1::Config config = Configuration();
  const auto server = Mounts(Pod("DaemonSet/ballast-server"));
  const auto rank = Mounts(Pod("Job/ballast-training"));
  // The socket, and the arena, are at the same path in both.
  EXPECT_EQ(config.serve().listen(0),
            absl::StrCat("unix:", server.at("socket"), "/server.sock"));
  EXPECT_EQ(server.at("socket"), rank.at("socket"));
  EXPECT_EQ(config.serve().arena(), server.at("arena"));
  EXPECT_EQ(server.at("arena"), rank.at("arena"));
  for (const std::string& file :
       {config.security().tls().cert(), config.security().tls().key(),
        config.security().tls().client_ca()}) {
    const std::string folder = absl::StrCat(server.at("tls"), "/");
    ASSERT_TRUE(absl::StartsWith(file, folder)) << file;
    EXPECT_TRUE(objects_["Secret/ballast-tls"]["stringData"]
                        [file.substr(folder.size())]);
  }
  // The index must be read where the index job writes it.
  EXPECT_TRUE(
      absl::StartsWith(config.sources(0).index(), server.at("index") + "/"));
  EXPECT_EQ(Mounts(Pod("Job/ballast-index")).at("index"), server.at("index"));

  const YAML::Node container =
      Pod("DaemonSet/ballast-server")["spec"]["containers"][0];
  const std::string port = Text(container["ports"][0]["containerPort"]);
  EXPECT_THAT(config.serve().listen(1), HasSubstr(":" + port));
  EXPECT_EQ(
      Text(objects_["Service/ballast-server"]["spec"]["ports"][0]["port"]),
      port);
  for (const char* probe : {"startupProbe", "readinessProbe"}) {
    EXPECT_EQ(Text(container[probe]["exec"]["command"][2]),
              config.serve().listen(0));
  }
  std::string servers;
  for (const auto& variable :
       Pod("Job/ballast-training")["spec"]["containers"][0]["env"]) {
    if (Text(variable["name"]) == "BALLAST_SERVER") {
      servers = Text(variable["value"]);
    }
  }
  EXPECT_EQ(servers, absl::StrCat(config.serve().listen(0),
                                  ",ballast-server.ballast.svc:", port));
  // The job has one rank for each of the configuration.
  EXPECT_EQ(Text(objects_["Job/ballast-training"]["spec"]["completions"]),
            absl::StrCat(config.topology().modules().at("language").dp()));
}

TEST_F(ManifestsTest, PortsThatAreNamedAreTheServers) {
  const v1::Config config = Configuration();
  const YAML::Node container =
      Pod("DaemonSet/ballast-server")["spec"]["containers"][0];
  std::map<std::string, std::string> ports;
  for (const auto& port : container["ports"]) {
    ports[Text(port["name"])] = Text(port["containerPort"]);
  }
  EXPECT_EQ(config.serve().http(), absl::StrCat("0.0.0.0:", ports["http"]));
  // Not a TCP connect, which a server that is stopped or deadlocked answers.
  EXPECT_FALSE(container["livenessProbe"]["tcpSocket"]);
  EXPECT_EQ(Text(container["livenessProbe"]["exec"]["command"][3]), "health");
  EXPECT_EQ(Text(container["livenessProbe"]["exec"]["command"][4]), "--alive");
  const YAML::Node policy = objects_["NetworkPolicy/ballast-server"]["spec"];
  std::set<std::string> let_in;
  for (const auto& rule : policy["ingress"]) {
    for (const auto& port : rule["ports"]) let_in.insert(Text(port["port"]));
  }
  EXPECT_EQ(let_in, (std::set<std::string>{"grpc", "http"}));
  // Object stores, wherever they are.
  std::set<std::string> let_out;
  for (const auto& rule : policy["egress"]) {
    for (const auto& to : rule["to"]) {
      if (!to["ipBlock"]) continue;
      for (const auto& port : rule["ports"]) {
        let_out.insert(
            absl::StrCat(Text(to["ipBlock"]["cidr"]), " ", Text(port["port"])));
      }
    }
  }
  EXPECT_EQ(let_out, (std::set<std::string>{"0.0.0.0/0 443", "::/0 443"}));
  const YAML::Node monitor = objects_["PodMonitor/ballast-server"]["spec"];
  EXPECT_EQ(Text(monitor["podMetricsEndpoints"][0]["port"]), "http");
}

TEST_F(ManifestsTest, TokensAreThoseThatTheServersKnow) {
  const v1::Config config = Configuration();
  const YAML::Node secret = objects_["Secret/ballast-tokens"]["stringData"];
  EXPECT_EQ(config.security().tokens_file(),
            Mounts(Pod("DaemonSet/ballast-server"))["tokens"] + "/tokens");
  const std::string known = Text(secret["tokens"]);
  for (const char* holder : {"trainer", "scrape"}) {
    ASSERT_NE(Text(secret[holder]), "");
    EXPECT_THAT(known, HasSubstr(Text(secret[holder]) + "\n"));
  }
  for (const char* key : {"DaemonSet/ballast-server", "Job/ballast-training"}) {
    std::map<std::string, std::string> variables;
    for (const auto& variable : Pod(key)["spec"]["containers"][0]["env"]) {
      variables[Text(variable["name"])] = Text(variable["value"]);
    }
    EXPECT_EQ(variables["BALLAST_TOKEN_FILE"],
              Mounts(Pod(key))["tokens"] + "/trainer");
  }
  const YAML::Node credentials =
      objects_["PodMonitor/ballast-server"]["spec"]["podMetricsEndpoints"][0]
              ["authorization"]["credentials"];
  EXPECT_EQ(Text(credentials["name"]), "ballast-tokens");
  EXPECT_EQ(Text(credentials["key"]), "scrape");
}

TEST_F(ManifestsTest, TheServerTakesTheCoresThatItAsksFor) {
  const YAML::Node container =
      Pod("DaemonSet/ballast-server")["spec"]["containers"][0];
  EXPECT_EQ(Text(container["resources"]["requests"]["cpu"]),
            absl::StrCat(Configuration().serve().threads()));
}

TEST_F(ManifestsTest, TheNodesConfigurationLoads) {
  std::ifstream file("deploy/ballast.yaml");
  std::ostringstream text;
  text << file.rdbuf();
  const auto config = ParseConfig(text.str(), "ballast.yaml", "/etc/ballast");
  EXPECT_TRUE(config.ok()) << config.status();
}

}  // namespace
}  // namespace ballast
