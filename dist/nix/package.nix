# Builds the programs by cargo, with manual pages, completions and the drop-ins of the systemd unit.
{
  lib,
  rustPlatform,
  installShellFiles,
  cmake,
  stdenv,
  source,
  version,
  commit ? null,
}:
rustPlatform.buildRustPackage {
  pname = "tidegate";
  inherit version;
  src = source;
  cargoLock.lockFile = ../../Cargo.lock;
  buildType = "dist";
  cargoBuildFlags = [
    "--package=tidegate"
    "--package=tidegate-import"
  ];
  # Tests need networks and other trackers: `cargo xtask test` runs them.
  doCheck = false;
  nativeBuildInputs = [
    cmake
    installShellFiles
  ];
  # For C libraries of crates, not for this package.
  dontUseCmakeConfigure = true;
  env = lib.optionalAttrs (commit != null) { TIDEGATE_COMMIT = commit; };

  postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
    $out/bin/tidegate man --out .
    $out/bin/tidegate-import --man > tidegate-import.1
    installManPage *.1
    for shell in bash fish zsh; do
      $out/bin/tidegate completions $shell > tidegate.$shell
      $out/bin/tidegate-import --completions $shell > tidegate-import.$shell
    done
    installShellCompletion tidegate.{bash,fish,zsh} tidegate-import.{bash,fish,zsh}
  '';

  meta = {
    description = "BitTorrent tracker for UDP, HTTP and WebTorrent";
    license = lib.licenses.asl20;
    mainProgram = "tidegate";
    platforms = lib.platforms.unix;
  };
}
