# `services.tidegate` of NixOS: the unit of the packages with a configuration from Nix.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.tidegate;
  toml = pkgs.formats.toml { };
  file = toml.generate "tidegate.toml" cfg.settings;
in
{
  options.services.tidegate = {
    enable = lib.mkEnableOption "the BitTorrent tracker tidegate";
    package = lib.mkOption {
      type = lib.types.package;
      description = "The package with the program.";
    };
    settings = lib.mkOption {
      inherit (toml) type;
      default = { };
      example = {
        tracker.interval_s = 900;
      };
      description = "The configuration, by the keys of `tidegate config init`.";
    };
    openFirewall = lib.mkOption {
      type = lib.types.bool;
      default = false;
      description = "Opens port 6969 for UDP and TCP. Listeners of your own need their ports, too.";
    };
  };

  config = lib.mkIf cfg.enable {
    services.tidegate.settings.state.dir = lib.mkDefault "/var/lib/tidegate";
    users.users.tidegate = {
      isSystemUser = true;
      group = "tidegate";
      home = "/var/lib/tidegate";
    };
    users.groups.tidegate = { };
    environment.systemPackages = [ cfg.package ];
    environment.etc."tidegate/tidegate.toml".source = file;
    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedTCPPorts = [ 6969 ];
      allowedUDPPorts = [ 6969 ];
    };

    # The unit of the packages; these lists replace its commands.
    systemd.packages = [
      (pkgs.runCommand "tidegate-unit" { } ''
        install -D -m 644 ${../tidegate.service} $out/lib/systemd/system/tidegate.service
      '')
    ];
    systemd.services.tidegate = {
      wantedBy = [ "multi-user.target" ];
      reloadTriggers = [ file ];
      serviceConfig = {
        ExecStart = [
          ""
          "${cfg.package}/bin/tidegate serve --config /etc/tidegate/tidegate.toml"
        ];
        ExecReload = [
          ""
          "${pkgs.coreutils}/bin/kill -HUP $MAINPID"
        ];
      };
    };
  };
}
