#include "src/base/log.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace muonstore {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

LogLevel FromSpdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return LogLevel::kDebug;
    case spdlog::level::info:
      return LogLevel::kInfo;
    case spdlog::level::warn:
      return LogLevel::kWarning;
    default:
      return LogLevel::kError;
  }
}

// Hands lines to the user's handler.
class HandlerSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit HandlerSink(LogHandler handler) : handler_(std::move(handler)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    handler_(FromSpdlog(message.level),
             {message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

 private:
  LogHandler handler_;
};

std::shared_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("muonstore", std::move(sink));
  // Whatever a sink throws is no reason to fail.
  logger->set_error_handler([](const std::string&) {});
  logger->set_pattern("muonstore: %l: %v");
  return logger;
}

std::shared_ptr<spdlog::logger> MakeDefaultLogger() {
  return MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

// The logger, which SetLogHandler replaces.
class Holder {
 public:
  Holder() : logger_(MakeDefaultLogger()) {
    const char* level = std::getenv("MUONSTORE_LOG");
    logger_->set_level(level == nullptr ? spdlog::level::warn
                                        : spdlog::level::from_str(level));
  }

  std::shared_ptr<spdlog::logger> get() {
    const std::lock_guard lock(mutex_);
    return logger_;
  }
  void Replace(std::shared_ptr<spdlog::logger> logger) {
    const std::lock_guard lock(mutex_);
    logger->set_level(logger_->level());
    logger_ = std::move(logger);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<spdlog::logger> logger_;
};

Holder& TheHolder() {
  static Holder holder;
  return holder;
}

}  // namespace

void SetLogLevel(LogLevel level) {
  TheHolder().get()->set_level(ToSpdlog(level));
}

void SetLogHandler(LogHandler handler) {
  TheHolder().Replace(
      handler == nullptr
          ? MakeDefaultLogger()
          : MakeLogger(std::make_shared<HandlerSink>(std::move(handler))));
}

void Log(LogLevel level, std::string_view text) {
  TheHolder().get()->log(ToSpdlog(level),
                         spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace muonstore
