module runstone/integrations/cometbft/network

go 1.22
