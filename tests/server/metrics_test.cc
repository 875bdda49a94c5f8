#include "server/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What a scrape of /metrics is answered.
std::string Scrape(const Metrics& metrics) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(metrics.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)),
            0);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(connection, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char bytes[4096];
  ssize_t count = 0;
  while ((count = read(connection, bytes, sizeof(bytes))) > 0) {
    answer.append(bytes, static_cast<size_t>(count));
  }
  close(connection);
  return answer;
}

std::unique_ptr<Metrics> Start(MetricsSources sources) {
  auto metrics = Metrics::Start("127.0.0.1:0", std::move(sources));
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  return *std::move(metrics);
}

TEST(MetricsTest, TellsWhatEachPartCounts) {
  MetricsSources sources;
  sources.memory = {{"slots", 5000}};
  sources.engine = [] {
    EngineStats stats;
    stats.num_slots = 8;
    stats.free_slots = 3;
    return stats;
  };
  sources.prefix_cache = [] {
    PrefixCache::Stats stats;
    stats.hits = 2;
    stats.lost_misses = 4;
    stats.used_evictions = 6;
    stats.bytes = 1000;
    return stats;
  };
  sources.sessions = [] {
    Sessions::Stats stats;
    stats.created = 11;
    return stats;
  };
  sources.checkpoints = [] {
    CheckpointKeeper::Stats stats;
    stats.failed = 13;
    return stats;
  };
  EXPECT_THAT(
      Scrape(*Start(std::move(sources))),
      AllOf(HasSubstr("\nflash_memory_plan_bytes{part=\"slots\"} 5000"),
            HasSubstr("\nflash_slots{state=\"busy\"} 5"),
            HasSubstr("\nflash_prefix_cache_hits_total 2"),
            HasSubstr("\nflash_prefix_cache_misses_total{reason=\"lost\"} 4"),
            HasSubstr("\nflash_prefix_cache_evictions_total{reason=\"budget\","
                      "used=\"yes\"} 6"),
            HasSubstr("\nflash_prefix_cache_bytes 1000"),
            HasSubstr("\nflash_sessions_created_total 11"),
            HasSubstr("\nflash_checkpoints_total{result=\"failed\"} 13")));
}

TEST(MetricsTest, DoesNotTellOfWhatThereIsNot) {
  MetricsSources sources;
  sources.engine = [] { return EngineStats{}; };
  EXPECT_THAT(Scrape(*Start(std::move(sources))),
              AllOf(HasSubstr("flash_slots"), Not(HasSubstr("prefix_cache")),
                    Not(HasSubstr("session")), Not(HasSubstr("checkpoint"))));
}

}  // namespace
}  // namespace flash
