# Homebrew's formula, built from the source archive of a release. `cargo xtask release` writes version and checksum. The
# address is an example: replace it by that of the archive.
class Tidegate < Formula
  desc "BitTorrent tracker for UDP, HTTP and WebTorrent"
  homepage "https://example.org/tidegate"
  url "https://example.org/tidegate/tidegate-VERSION-source.tar.gz"
  sha256 "SHA256_OF_source"
  license "Apache-2.0"

  depends_on "rust" => :build

  def install
    ["app/tidegate", "tools/import"].each do |path|
      system "cargo", "install", *std_cargo_args(path: path)
    end
    generate_completions_from_executable(bin/"tidegate", "completions")
    system bin/"tidegate", "man", "--out", buildpath
    man1.install Dir["*.1"]
    (buildpath/"tidegate.toml").write <<~TOML
      # `tidegate config init` prints every key with its default and meaning.
      [state]
      dir = "#{var}/lib/tidegate"
    TOML
    (etc/"tidegate").install "tidegate.toml"
    (var/"lib/tidegate").mkpath
  end

  service do
    run [opt_bin/"tidegate", "serve", "--config", etc/"tidegate/tidegate.toml"]
    keep_alive true
    log_path var/"log/tidegate.log"
    error_log_path var/"log/tidegate.log"
  end

  test do
    port = free_port
    settings = {
      "TIDEGATE_UDP__LISTEN"   => "[]",
      "TIDEGATE_HTTP__LISTEN"  => "[\"127.0.0.1:#{port}\"]",
      "TIDEGATE_ADMIN__LISTEN" => "127.0.0.1:#{free_port}",
    }
    tracker = spawn(settings, bin/"tidegate", "serve", "--memory")
    sleep 2
    system bin/"tidegate", "check", "http://127.0.0.1:#{port}/announce"
  ensure
    Process.kill("TERM", tracker)
    Process.wait(tracker)
  end
end
