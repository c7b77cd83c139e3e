# For Nix and NixOS: the programs, built from this source, and a module with the service.
{
  description = "BitTorrent tracker for UDP, HTTP and WebTorrent";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "x86_64-darwin"
        "aarch64-darwin"
      ];
      eachSystem = make: lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      version = (lib.importTOML ./Cargo.toml).workspace.package.version;
    in
    {
      packages = eachSystem (pkgs: {
        default = pkgs.callPackage ./dist/nix/package.nix {
          inherit version;
          source = self;
          commit = self.rev or null;
        };
      });

      nixosModules.default =
        { pkgs, lib, ... }:
        {
          imports = [ ./dist/nix/module.nix ];
          services.tidegate.package = lib.mkDefault self.packages.${pkgs.stdenv.hostPlatform.system}.default;
        };
    };
}
