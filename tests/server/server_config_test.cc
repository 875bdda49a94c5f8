#include "server/server_config.h"

#include <map>

#include "absl/flags/reflection.h"
#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::HasSubstr;

class ServerConfigTest : public testing::Test {
 protected:
  absl::StatusOr<ServerConfig> Read(
      std::vector<std::string> arguments,
      const std::map<std::string, std::string>& environment = {}) {
    const absl::FlagSaver saver;
    arguments.push_back("--model=somewhere");
    const auto line = ReadCommandLine(
        ServerProgram(), arguments, [&environment](const char* name) {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        });
    if (!line.ok()) return line.status();
    return ServerConfigFromFlags();
  }

  std::string Error(const std::string& argument) {
    const auto config = Read({argument});
    EXPECT_TRUE(absl::IsInvalidArgument(config.status())) << argument;
    return std::string(config.status().message());
  }
};

TEST_F(ServerConfigTest, HasDefaultsThatWork) {
  const auto config = Read({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model, "somewhere");
  EXPECT_EQ(config->listen, "127.0.0.1:8500");
  EXPECT_EQ(config->metrics_listen, "127.0.0.1:9400");
  EXPECT_EQ(config->device, ServerConfig::Device::kAuto);
  EXPECT_FALSE(config->weights.has_value());
  EXPECT_FALSE(config->card.has_value());
  EXPECT_FALSE(config->slots.has_value());
  EXPECT_FALSE(config->max_step_rows.has_value());
  EXPECT_FALSE(config->threads.has_value());
  EXPECT_EQ(config->max_message_bytes, 16 << 20);
  EXPECT_EQ(config->session_store, "memory");
  EXPECT_FALSE(config->session_store_bytes.has_value());
  EXPECT_EQ(config->session_ttl, std::chrono::hours(24));
  EXPECT_EQ(config->tenant_metadata, "");
}

TEST_F(ServerConfigTest, ReadsTheFlagsOfSessions) {
  const auto config =
      Read({"--session_store=redis://127.0.0.1:6379",
            "--session_store_bytes=auto", "--session_cache_bytes=0",
            "--session_ttl=90s", "--session_compression=zstd",
            "--prefix_cache_bytes=1000000", "--prefix_cache_sharing=all",
            "--checkpoint_every_tokens=512", "--tenant_metadata=x-tenant"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->session_store, "redis://127.0.0.1:6379");
  EXPECT_EQ(config->session_cache_bytes, 0);
  EXPECT_EQ(config->session_ttl, std::chrono::seconds(90));
  EXPECT_EQ(config->session_compression, SnapshotCompression::kZstd);
  EXPECT_EQ(config->prefix_cache_bytes, 1000000);
  EXPECT_EQ(config->prefix_cache_sharing, PrefixCache::Sharing::kAmongAll);
  EXPECT_EQ(config->checkpoint_every_tokens, 512);
  EXPECT_EQ(config->tenant_metadata, "x-tenant");
  EXPECT_EQ(Read({"--session_store="})->session_store, "");
}

TEST_F(ServerConfigTest, RefusesSessionsThatCannotBeKeptSo) {
  EXPECT_THAT(Error("--session_store=disk"), HasSubstr("dir:PATH"));
  EXPECT_THAT(Error("--session_store_bytes=0"), HasSubstr("from 1"));
  EXPECT_THAT(Error("--session_cache_bytes=some"), HasSubstr("auto"));
  EXPECT_THAT(Error("--session_ttl=0s"), HasSubstr("from 1s to 720h"));
  EXPECT_THAT(Error("--session_ttl=721h"), HasSubstr("from 1s to 720h"));
  EXPECT_THAT(Error("--session_compression=gzip"), HasSubstr("none or zstd"));
  EXPECT_THAT(Error("--prefix_cache_bytes=-1"), HasSubstr("from 0"));
  EXPECT_THAT(Error("--prefix_cache_sharing=some"), HasSubstr("owner or all"));
  EXPECT_THAT(Error("--checkpoint_every_tokens=-1"), HasSubstr("from 0"));
  EXPECT_THAT(Error("--tenant_metadata=X-Tenant"), HasSubstr("lower-case"));
  EXPECT_THAT(Error("--tenant_metadata=x-bin"), HasSubstr("-bin"));
  const auto no_store =
      Read({"--session_store=", "--checkpoint_every_tokens=8"});
  EXPECT_THAT(std::string(no_store.status().message()),
              HasSubstr("--session_store"));
  const auto no_cache =
      Read({"--prefix_cache_bytes=0", "--checkpoint_every_tokens=8"});
  EXPECT_THAT(std::string(no_cache.status().message()),
              HasSubstr("--prefix_cache_bytes"));
}

TEST_F(ServerConfigTest, ReadsEveryFlag) {
  const auto config = Read(
      {"--listen=[::]:0", "--metrics_listen=", "--device=cpu",
       "--weights=float32", "--cache=bfloat16", "--slots=8", "--threads=2",
       "--cpu_isa=avx2", "--drain_timeout=1m", "--slow_reader_timeout=500ms"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->listen, "[::]:0");
  EXPECT_EQ(config->metrics_listen, "");
  EXPECT_EQ(config->device, ServerConfig::Device::kCpu);
  EXPECT_EQ(config->weights, DataType::kFloat32);
  EXPECT_EQ(config->cache, DataType::kBFloat16);
  EXPECT_EQ(config->slots, 8);
  EXPECT_EQ(config->threads, 2);
  EXPECT_EQ(config->cpu_isa, "avx2");
  EXPECT_EQ(config->drain_timeout, std::chrono::minutes(1));
  EXPECT_EQ(config->slow_reader_timeout, std::chrono::milliseconds(500));
}

TEST_F(ServerConfigTest, ACardMayBeNamed) {
  const auto named = Read({"--device=cuda:3"});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->device, ServerConfig::Device::kCuda);
  EXPECT_EQ(named->card, 3);
  const auto any = Read({"--device=cuda"});
  EXPECT_EQ(any->device, ServerConfig::Device::kCuda);
  EXPECT_FALSE(any->card.has_value());
}

TEST_F(ServerConfigTest, WeightsCanBeOfTypesThatAStateCannot) {
  EXPECT_EQ(Read({"--weights=int8"})->weights, DataType::kInt8);
  EXPECT_EQ(Read({"--weights=bfloat16"})->weights, DataType::kBFloat16);
  EXPECT_FALSE(Read({"--weights=auto"})->weights.has_value());
}

TEST_F(ServerConfigTest, HasAnEnvironmentTwinOfEachFlag) {
  const auto config =
      Read({"--threads=3"}, {{"FLASH_SLOTS", "5"},
                             {"FLASH_THREADS", "7"},
                             {"FLASH_LISTEN", "0.0.0.0:8500"},
                             {"FLASH_DRAIN_TIMEOUT", "2s"},
                             {"FLASH_PORT", "tcp://10.0.0.1:80"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->slots, 5);
  EXPECT_EQ(config->threads, 3);  // the command line wins
  EXPECT_EQ(config->listen, "0.0.0.0:8500");
  EXPECT_EQ(config->drain_timeout, std::chrono::seconds(2));
}

TEST_F(ServerConfigTest, NamesFlagValueAndWhatIsAccepted) {
  EXPECT_EQ(Error("--slots=0"),
            "--slots is \"0\"; it must be auto, or from 1 to 65536");
  EXPECT_THAT(Error("--threads=many"), HasSubstr("--threads is \"many\""));
  EXPECT_THAT(Error("--weights=int4"),
              HasSubstr("auto, float32, bfloat16 or int8"));
  EXPECT_THAT(Error("--cache=int8"), HasSubstr("auto, float32 or bfloat16"));
  for (const char* device :
       {"tpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1024"}) {
    EXPECT_THAT(Error(std::string("--device=") + device),
                HasSubstr("auto, cpu, cuda or cuda:N"));
  }
  EXPECT_THAT(Error("--cpu_isa=sse"), HasSubstr("avx2 or portable"));
  EXPECT_THAT(Error("--listen=8500"), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Error("--listen=host:70000"), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Error("--metrics_listen=x"), HasSubstr("--metrics_listen"));
  EXPECT_THAT(Error("--max_step_rows=1"),
              HasSubstr("auto, or from 2 to 65536"));
  EXPECT_THAT(Error("--max_drafted_tokens=15"), HasSubstr("from 0 to 14"));
  EXPECT_THAT(Error("--target_step_ms=0"), HasSubstr("from 0.001 to"));
  EXPECT_THAT(Error("--target_step_ms=soon"), HasSubstr("auto, or from"));
  EXPECT_THAT(Error("--drain_timeout=-1s"), HasSubstr("from 0 to a year"));
  EXPECT_THAT(Error("--slow_reader_timeout=0s"), HasSubstr("from 1ms"));
}

TEST_F(ServerConfigTest, NeedsAModel) {
  const absl::FlagSaver saver;
  ASSERT_TRUE(
      ReadCommandLine(ServerProgram(), {}, [](const char*) -> const char* {
        return nullptr;
      }).ok());
  EXPECT_THAT(std::string(ServerConfigFromFlags().status().message()),
              HasSubstr("--model is not set"));
}

}  // namespace
}  // namespace flash
